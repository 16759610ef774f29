"""Bytes that were written once and must stay readable for ever."""
