"""Bundles: what a diagnosis rests on in one file, without data and without secrets, to be diagnosed elsewhere."""
