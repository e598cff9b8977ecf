# SPDX-License-Identifier: GPL-2.0-only
"""This package reads the TOML file of a scenario: settings, operations and script steps."""
