"""Flink SQL in the race."""
