"""TOML files of the user: what keys take, and errors that name file, line and key."""
