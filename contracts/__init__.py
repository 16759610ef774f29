"""The names, bytes and file formats that the sidecars, the Spark jobs and their users share."""
