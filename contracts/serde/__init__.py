"""Decode and encode values; sidecars and Spark jobs share this code, so they read alike."""
