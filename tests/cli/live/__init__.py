"""Tests of the commands on live links."""
