"""An instance of very many partitions starts, shares them, and takes them over."""
