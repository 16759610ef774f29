"""How every test runs: hypothesis' profiles, two tiers (`tiers.py`) and the course of a run.

`ci` finds the same examples on every run, so that a red run is red again; `thorough` looks further,
and is asked for with `--hypothesis-profile thorough` (`make thorough`).
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

pytest_plugins = [
    "tests.kafka.fixtures",
    "tests.spark.fixtures",
    "tests.course",
    "tests.spread",
    "tests.tiers",
]

settings.register_profile("ci", derandomize=True, max_examples=30, deadline=None, print_blob=True)
settings.register_profile(
    "thorough",
    max_examples=2_000,
    deadline=None,
    print_blob=True,
    # Long streams of records are the point here, however slowly they are made.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("ci")
