"""Windows of an aggregate: one module a kind, and what all of them share."""
