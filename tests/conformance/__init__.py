"""The expected output, record by record, and the runners that compare."""
