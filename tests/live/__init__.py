"""Tests of live links."""
