# SPDX-License-Identifier: GPL-2.0-only
"""This package reads the TOML files of the user. It checks the value of every key, and its errors name file, line and
key."""
