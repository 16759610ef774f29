"""What this process may take of its machine: memory, files, a folder, time to collect."""
