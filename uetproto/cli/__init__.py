"""Holds the commands: a command is one file or one folder, loaded when it is invoked."""
