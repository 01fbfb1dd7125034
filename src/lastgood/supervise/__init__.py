"""Start a command, watch it and its checkpoint, restart it within a policy."""
