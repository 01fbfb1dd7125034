"""Commands that never outlive their owner, and the Python and Java they need."""
