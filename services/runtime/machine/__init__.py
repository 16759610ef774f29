"""This process's share of its machine: memory, files, a folder, time to collect."""
