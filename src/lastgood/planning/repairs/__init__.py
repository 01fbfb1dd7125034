"""What can be put right in logs and sinks, each with what it rests on. Pure."""
