# SPDX-License-Identifier: GPL-2.0-only
"""This package turns the records of a capture into observed packets: it finds where the headers, the payload and the
trailer of each packet end."""
