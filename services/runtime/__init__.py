"""A process that runs a pipeline, from who lives longest down to what a batch passes."""
