"""This package reads the TOML files of the user: it has the legal values of every key, and its errors name file, line
and key."""
