"""Every record accounted for: from the logs alone, or counted by Spark in source and sink."""
