"""A Delta table as a sink."""
