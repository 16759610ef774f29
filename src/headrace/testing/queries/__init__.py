"""Run a query over records without Spark's Java: Spark's processor here, its expressions again.

kinds         types of columns: from a schema, and what two of them become
casts         a value as another type, or no answer
json_values   bytes as columns, and columns as bytes, as Spark reads and writes JSON
expressions   SQL expressions compiled to Python; what Python cannot answer alike is refused
functions     the functions of SQL among them
rows          the steps of a query, applied to rows
job           one query: records in, the processor that production runs, rows out
"""
