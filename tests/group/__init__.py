"""The group shares tasks out: simulated, byte by byte, and with every rule broken once."""
