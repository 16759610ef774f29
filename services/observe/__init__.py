"""A running sidecar shows itself here: metrics, logs and health."""
