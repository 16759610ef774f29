"""All metrics, in one table: a module for each thing that is observed."""
