"""Where a query writes: which batches a sink shows, and which it would skip without a word."""
