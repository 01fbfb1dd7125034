"""Copies of a query's logs: the mirror that is kept while it runs, and backups."""
