"""The only place that imports pyspark."""
