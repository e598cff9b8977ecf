"""`uetproto audit`: options, text, JUnit, marked captures and plots."""
