"""What became of a query that failed: written down, held against what was promised, and told."""
