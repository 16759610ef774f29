"""What Spark makes of cleaned topics: joins and aggregations that remember versions."""
