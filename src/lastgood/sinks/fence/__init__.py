"""A table in which a function notes down the batches that it has written: the fence."""
