"""Checks on machines that users have: other Pythons, other libraries, a bare Debian."""
