"""Pipelines in Python, and what `headrace.testing` does with them."""
