"""Runs the vectors of versioned tables through real Spark streaming queries."""
