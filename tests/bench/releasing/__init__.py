"""The number of records that a Spark job holds while it reads a backlog of a week."""
