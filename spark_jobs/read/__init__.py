"""Cleaned topics as frames: what a record is, how far a topic is, and what a row is made of.

The law of this folder
    1. Only committed records are read, and none is left out in silence.
    2. Keys and values stay bytes until the job wants columns; a tombstone stays a null.
    3. What cannot be read is marked dead and goes on, with the headers of a dead letter.
"""
