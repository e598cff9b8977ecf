"""Parts that several tests of audit share: fast path."""

from collections.abc import Iterator

from uetproto.audit.reader.observed import ObservedPacket


class NoCrc(dict[tuple[int, int], bool]):
    """Every flow is known to have none, so that readers of packets without one are asked as well."""

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
