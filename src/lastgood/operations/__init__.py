"""One verb a file, plain functions; the only place where parts are wired together."""
