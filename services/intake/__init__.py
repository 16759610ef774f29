"""The door: from what Kafka delivered to records with an event time that can be believed."""
