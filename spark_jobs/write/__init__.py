"""What leaves a query: to Kafka and Delta exactly once, to Parquet and the console.

A query goes through its micro-batches one by one. If its driver dies, the last one is run again,
with the same input and the same state, so with the same output. Every sink here knows what it has
written of that batch, and writes the rest.

That promise hangs on the checkpoint: a query with a new checkpoint would write everything again.
So each sink remembers which checkpoint writes to it, and refuses another one.
"""
