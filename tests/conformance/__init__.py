"""What must come out, record by record, and the runners that compare."""
