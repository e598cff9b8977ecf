"""This package reads the TOML file of a scenario: its keys, rows, operations and settings."""
