"""What a running sidecar says about itself: numbers, words, and whether it is well."""
