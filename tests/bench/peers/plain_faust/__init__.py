"""Faust as its own pages teach it: an agent, a table, a record at a time."""
