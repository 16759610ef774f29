"""State comes back from its changelog, which is kept short."""
