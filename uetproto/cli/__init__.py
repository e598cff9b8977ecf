"""The command line: a command is one file or one folder, loaded when it is invoked."""
