"""What a repartition costs a sidecar, beside the version before origins were told."""
