"""The tests that take long, or draw by chance: `make test-long`."""
