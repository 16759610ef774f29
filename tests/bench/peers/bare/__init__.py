"""A client of Kafka and nothing else: the floor under everybody who does something."""
