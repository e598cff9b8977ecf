"""Parts that tests of cli share, first needed for generate."""

from uetproto.cli.main import cli


def status(*arguments: str) -> int:
    return cli.status(["generate", *arguments])  # type: ignore[attr-defined, no-any-return]
