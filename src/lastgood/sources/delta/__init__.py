"""A Delta table as a source."""
