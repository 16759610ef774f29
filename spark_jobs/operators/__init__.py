"""The versioned tables and joins as stateful operators of Spark.

    records, progress -> spread over tasks -> one stateful processor -> results, late rows, counts

The law of this folder
    1. Importing starts nothing: a worker process imports these modules too.
    2. A group is a task, never a key. A task is a Kafka partition, or a bucket of hashed keys.
    3. This code puts rows in order by their origins; Spark promises no order.
    4. State is rows of bytes, as `headrace.spark_jobs.versioned.layout` writes them.
"""
