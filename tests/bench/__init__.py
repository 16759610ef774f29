"""Benches: each operator over RocksDB beside its own store calls made by nobody."""
