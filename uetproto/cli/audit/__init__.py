"""This package has the command `uetproto audit`: options, text, JUnit, annotated captures and plots."""
