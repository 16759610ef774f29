"""The stores of operators' state: memory or RocksDB, seen through an overlay."""
