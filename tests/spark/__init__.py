"""The Spark jobs, on real brokers and in real queries."""
