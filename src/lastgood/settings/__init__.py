"""What was set on this machine: `lastgood.toml`, its policies and targets, and the keys that sign."""
