"""A mutation is named damage to bytes, headers and frames, for fuzzing and for audit tests."""
