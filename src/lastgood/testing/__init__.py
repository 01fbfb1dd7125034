"""Working doubles for tests, of lastgood and of those who build on it."""
