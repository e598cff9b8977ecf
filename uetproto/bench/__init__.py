"""This package measures how fast the library is on this machine (`uetproto bench`), with a module for each subject."""
