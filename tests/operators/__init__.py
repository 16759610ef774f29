"""Examples of single records and decisions, beside the properties."""
