"""Spark's file sink: a folder with `_spark_metadata`."""
