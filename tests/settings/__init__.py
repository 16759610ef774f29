"""Settings: from variables, files and flags, and what is said when they are wrong."""
