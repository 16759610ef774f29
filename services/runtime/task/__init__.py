"""One partition of one hop: what it has, what it does, and what it shows."""
