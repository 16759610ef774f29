"""The sidecar: from a raw topic to a cleaned one."""
