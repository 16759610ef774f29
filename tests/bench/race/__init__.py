"""The race: headrace beside its peers, on one broker, from the same records."""
