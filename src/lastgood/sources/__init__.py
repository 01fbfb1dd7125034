"""What a query reads: offsets, and what of them can still be served."""
