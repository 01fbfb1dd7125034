"""What a user may ask for, one goal a file. Pure."""
