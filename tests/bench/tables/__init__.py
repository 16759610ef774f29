"""The shipped join over tables of ever more keys: a micro-batch must not cost more."""
