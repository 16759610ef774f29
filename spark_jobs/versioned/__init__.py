"""Versioned tables and the joins over them: pure Python, the heart of the Spark operators.

The law of this folder
    1. It decides; it never acts: no clock, randomness, log or I/O, and no Spark. The same batches
       over the same state give the same outputs.
    2. How the input is cut into batches, and where state is written out and read back, shows in
       no output.
    3. After `TaskState.save` all of its state is in rows of bytes (`layout`). An object lives for
       one batch of one task; the next batch begins with a fresh one.
    4. Every output names the input that caused it, as an index into its batch.
    5. The records that came in equal the verdicts plus the records held, always.

Rules (A6, D3, E4, ...) are those of `contracts/semantics`: versioned_table, stream_table_join and
table_table_join.
"""
