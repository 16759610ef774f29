"""Nonsense at random: files that nobody can run, and records that nobody can read."""
