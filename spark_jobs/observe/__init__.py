"""What a running query says of itself, and what its checkpoint remembers."""
