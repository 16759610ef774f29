"""Versioned tables and the joins over them, example by example."""
