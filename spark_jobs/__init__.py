"""Spark jobs over cleaned topics: joins and aggregations of versioned tables."""
