"""Queries by columns: streams and tables as descriptions, and as jobs that run.

described    streams and tables, joined, filtered and selected: values without Spark
aggregates   what a group's rows are folded into, exactly
topologies   a description as a topology: steps, and where columns lie in their bytes
expressions  a query's expressions, evaluated by Spark on the rows of a stage
compiled     a description as a job over today's topologies
"""
