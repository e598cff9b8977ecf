"""Bytes and values: one table per header, and what is derived from the rows."""
