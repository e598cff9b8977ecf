"""This package has the commands: each is one file or one folder, and is loaded when it is invoked."""
