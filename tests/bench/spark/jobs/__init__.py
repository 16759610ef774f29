"""One module a shipped job: what its topics hold, and the rows that it must make of them.

The name of each is in its `JOB`, and its `fill` takes how many records the largest topic gets.
"""
