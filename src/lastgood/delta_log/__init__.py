"""The log of a Delta table, read without a JVM: what its versions did, and whose transactions it remembers."""
