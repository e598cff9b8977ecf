"""Semantic sublayer (SES): messages, addressing, matching, checks, atomics and responses."""
