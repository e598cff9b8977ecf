"""The fuzzing world of the security sublayer (TSS): an attacker, invariants and findings."""
