"""The cost of many partitions with few records each, beside Kafka Streams."""
