"""This package measures how fast the library is on this machine (`uetproto bench`). Each module has one subject."""
