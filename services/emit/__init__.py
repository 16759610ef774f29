"""What leaves a sidecar beside its cleaned records, as records for the topics they go to."""
