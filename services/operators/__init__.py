"""Pure operators: a batch of records in, a step of records out; no clock, no log, no I/O."""
