"""What is tried for a query that keeps failing, how often it has failed, and how long it was down. Pure."""
