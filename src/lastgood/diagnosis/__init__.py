"""What a checkpoint's state of affairs means: what Spark would do with it, and what is wrong. Pure."""
