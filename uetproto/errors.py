"""The errors that leave this library: all of them are `UetError`; anything else is a bug."""


class UetError(Exception):
    """Root of every error that this library raises on purpose."""


class LocalError(UetError):
    """Our caller asked for something that cannot be: the message names the place and what is legal."""


class RemoteError(UetError):
    """The peer did something illegal.

    `code` is what to answer: a NACK code (pds.md §12) or a SES return code (ses.md §9.5).
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
