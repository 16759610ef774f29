"""Run a query over records without Spark's Java: Spark's processor here, its expressions again.

running       a query over the rows of a table, a micro-batch a record, with events between
loading       the query of a job's file, of a module, or of a scenario
job           one query: records in, the processor that production runs, rows out
rows          the steps of a query, applied to rows
expressions   SQL expressions compiled to Python; what Python cannot answer alike is refused
typed         a compiled expression
arithmetic    numbers computed with, to the digit
functions     the functions of SQL among them
casts         a value as another type, or no answer
kinds         types of columns: from a schema, and what two of them become
json_values   bytes as columns, and columns as bytes, as Spark reads and writes JSON
"""
