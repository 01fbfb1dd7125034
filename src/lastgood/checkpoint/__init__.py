"""Spark's checkpoint files: frozen values, bytes to values and back, layout, reader."""
