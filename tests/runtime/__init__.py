"""The rooms between a pipeline and a real broker."""
