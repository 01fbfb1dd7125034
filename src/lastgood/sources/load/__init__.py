"""The files of `lastgood load`, as a source."""
