"""What a Spark job holds while it reads a week that waits for it."""
