"""How much memory a sidecar takes, beside how much it was given."""
