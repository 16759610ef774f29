"""Jepsen's questions to a log: what was acknowledged, and what did readers see?

    history.py    what happened, as plain values; nothing of it knows any system
    check.py      from a history, what went wrong; pure
    workload.py   writers and readers over a `Log`: what a system has to offer to be asked
    kafka.py      a `Log` over a Kafka broker, with or without something between two topics

To ask another system, write its `Log` and call `workload.run`.
"""
