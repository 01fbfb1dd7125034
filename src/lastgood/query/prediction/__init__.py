"""What Spark does with a checkpoint at its next start, in its own order. Pure."""
