"""Who runs which task: simulated, byte by byte, and with every rule broken once."""
