"""Topics beside a cleaned topic."""
