"""How much a restore takes, by the size of what is restored."""
