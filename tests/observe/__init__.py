"""A sidecar's metrics, health and logs, over real HTTP where it serves them."""
