"""The tables of the pages in `contracts/semantics`, read and run."""
