"""What commands do to a pipeline that runs, or rests: put back, reset, look at."""
