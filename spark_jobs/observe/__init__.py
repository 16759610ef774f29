"""Metrics of a running query, and the contents of its checkpoint."""
