"""Vectors through a real broker and the sidecar that users run."""
