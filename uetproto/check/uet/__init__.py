"""This package simulates UET endpoints. It has the simulator with its steps, the step generator, the invariants with
their shadow state, and the episodes."""
