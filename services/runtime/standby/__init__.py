"""Copies of state that an instance keeps for tasks which others run."""
