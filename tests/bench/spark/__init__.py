"""Headrace's stream-table join beside Spark's own operators and Kafka Streams."""
