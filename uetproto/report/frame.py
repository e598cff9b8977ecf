# SPDX-License-Identifier: GPL-2.0-only
"""This module has the frame of pages that need no other file and no network, and forbid themselves both."""

from html import escape

_FRAME = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
<script>{program}</script>
</body>
</html>
"""


def plain(text: object) -> str:
    """Return a text of a capture or a file for a page: it ends no element, and has no control characters."""
    return escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text)))


def framed(title: str, style: str, body: str, program: str) -> str:
    """Return a page. `title` is text; `style`, `body` and `program` are used as they are."""
    return _FRAME.format(title=plain(title), style=style, body=body, program=program)
