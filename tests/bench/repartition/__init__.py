"""The cost of a repartition for a sidecar, beside the version before origins were told."""
