"""The command, as a person meets it."""
