"""This package reads the TOML file of a scenario: settings, operations and script steps."""
