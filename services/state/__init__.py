"""Where operators keep their state: memory or RocksDB, seen through an overlay."""
