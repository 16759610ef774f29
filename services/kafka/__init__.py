"""Requests to brokers and a schema registry, and their answers: who we are, what is there."""
