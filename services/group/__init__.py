"""Who runs which task, and how a task moves to somebody else: pure, over numbers and bytes."""
