"""The kill test: sidecars are killed at random while a stream runs; a judge knows the answer."""
