"""Properties: what holds for every input, every cut into batches and every crash."""
