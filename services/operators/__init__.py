"""Pure operators: a batch of records in, what leaves out; no clock, no log, no I/O."""
