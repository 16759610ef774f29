"""From raw orders and raw prices to priced orders, by headrace, Flink SQL and Kafka Streams."""
