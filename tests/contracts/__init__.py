"""What the contracts say is what they do."""
