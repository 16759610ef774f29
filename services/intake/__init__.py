"""The door: turn records from Kafka into records with a credible event time."""
