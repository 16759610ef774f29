"""Bytes and what they say; both halves of headrace decode and encode the same way."""
