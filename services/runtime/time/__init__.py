"""How far a source partition is where records do not say so: silent, by the clock, ahead."""
