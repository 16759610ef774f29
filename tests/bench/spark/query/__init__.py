"""One Spark contestant, as a process of his own."""
