"""The records that a sidecar writes to other topics than the cleaned one."""
