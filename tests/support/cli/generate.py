"""Parts that several tests of cli share: generate."""

from uetproto.cli.main import cli


def status(*arguments: str) -> int:
    return cli.status(["generate", *arguments])  # type: ignore[attr-defined, no-any-return]
