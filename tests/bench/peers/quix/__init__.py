"""Quix Streams, in an environment of its own."""
