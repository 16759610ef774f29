"""How long partitions stand still when a third worker joins, and when one is killed."""
