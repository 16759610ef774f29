"""A real Apache Kafka on this machine: fetched, configured, started, and stopped again."""
