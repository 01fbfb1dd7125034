"""Parse and print, one verb a file."""
