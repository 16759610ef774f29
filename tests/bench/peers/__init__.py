"""Those that headrace races against, each with an environment of its own."""
