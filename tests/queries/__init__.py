"""Queries by columns, as far as they need no Spark."""
