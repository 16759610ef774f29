"""Sidecars run for an hour and are killed now and then; every record is accounted for."""
