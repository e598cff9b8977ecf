# SPDX-License-Identifier: GPL-2.0-only
"""This module compares the packets of the audit's compiled readers with those of its slow path."""

from collections.abc import Iterator

from uetproto.audit.reader.observed import ObservedPacket


class NoCrc(dict[tuple[int, int], bool]):
    """In this table no flow has a CRC32C, so that readers of packets without one are used as well."""

    def get(self, *_: object) -> bool:  # type: ignore[override]
        return False


def classes(seen: ObservedPacket) -> Iterator[type]:
    yield type(seen.head)
    yield type(seen.ses)
    yield from map(type, seen.more)


def assert_same(quick: ObservedPacket | None, long: ObservedPacket) -> None:
    assert quick == long
    assert quick is not None
    assert list(classes(quick)) == list(classes(long))
