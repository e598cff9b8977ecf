"""`uetproto audit`: options, text, JUnit, annotated captures and plots."""
