"""What stands beside a cleaned topic."""
