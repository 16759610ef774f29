"""What many partitions with few records each cost, beside Kafka Streams."""
