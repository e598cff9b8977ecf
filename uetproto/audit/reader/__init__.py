"""This package turns the records of a capture into observed packets: it finds where header, payload and trailer end."""
