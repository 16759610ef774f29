"""Checks on machines that users have: other Pythons, libraries and Sparks, a bare Debian."""
