"""Brings a Spark Structured Streaming query back from its last good batch."""

__version__ = "0.1.0"
