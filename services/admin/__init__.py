"""Commands put dead letters back, reset a pipeline, and look at its state."""
