"""Write results: to Kafka, Delta and Iceberg exactly once, to Parquet and the console.

A query runs its micro-batches one by one. If its driver dies, the query runs the last one again,
with the same input and the same state, so with the same output. Every sink here knows which part of
that batch it has written, and writes the rest.

The promise depends on the checkpoint: a query with a new checkpoint would write everything again.
So each sink remembers which checkpoint writes to it, and refuses another one.
"""
