"""Naive references: what must come out, worked out from the whole input at every record.

An oracle re-scans everything, keeps everything, and shares no code with the services. It catches
what a fast operator gets wrong by being fast: indexes, batches, purges, restarts.
"""
