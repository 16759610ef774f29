"""Read cleaned topics as frames, with their progress, and decode their values.

The law of this folder
    1. Only committed records are read, and no record is left out in silence.
    2. Keys and values stay bytes until the job wants columns; a tombstone stays a null.
    3. An unreadable record is marked dead and goes on, with the headers of a dead letter.
"""
