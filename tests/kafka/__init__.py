"""A real broker for every test that wants one, and what tests say to it."""
