"""One thin module a job: its options, what its rows look like, and `transform`.

    Config            what its file may say, a `JobConfig` with the topics it reads
    VALUES            what its inputs' values are, as pydantic models; what is not that is dead
    Row               the JSON of a row it writes, as a pydantic model
    transform         records of its inputs -> results (see `headrace.spark_jobs.operators`)

A job of your own is such a module too; its file names it: `job: package.module`, or
`job: module` where the module lies in the folder that headrace is started in.
"""
