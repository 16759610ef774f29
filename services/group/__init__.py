"""Decide which member runs which task, and how a task moves: pure, over numbers and bytes."""
