"""`headrace demo`: a real broker, sidecars, Spark jobs behind them, and a page to look at.

clicks    what each operator decides about each click, with a sidecar that is killed half-way
orders    orders and prices, both as careless producers send them
running   the broker, the sidecars and the jobs, each in a process of its own
report    all of it as tables for the terminal
page      the same as a page with plots
"""

from headrace.services.cli.demo.command import demo

__all__ = ["demo"]
