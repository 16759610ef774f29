"""The way of a record to the first operator."""
