"""Kafka as a source: offsets, what a broker serves, and where a query is told to start."""
