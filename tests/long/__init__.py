"""What takes long, or draws by chance: `make test-long`."""
