"""Batch loads that resume: what a load is, its input files, and the ranges of them that its batches read."""
