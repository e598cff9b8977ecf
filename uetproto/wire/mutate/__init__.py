"""A mutation is damage with a name, done to bytes, headers or frames, for fuzzing and for audit tests."""
