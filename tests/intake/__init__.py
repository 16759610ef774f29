"""What happens to a record before the first operator sees it."""
