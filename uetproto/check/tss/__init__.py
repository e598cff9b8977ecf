"""The fuzzing simulator of the security sublayer (TSS): an attacker, invariants and findings."""
