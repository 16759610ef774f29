"""Pure operators: a batch of records in, what leaves out; state through a view; no clock, no log, no I/O."""
