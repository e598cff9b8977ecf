"""This package simulates UET endpoints; it has steps, step generator, invariants, shadow state and episodes."""
