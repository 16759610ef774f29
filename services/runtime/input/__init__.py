"""Batches of one partition, from the fetch to the task that takes them."""
