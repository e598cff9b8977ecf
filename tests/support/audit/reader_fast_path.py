"""Parts that tests of audit share, first needed for fast path."""

from collections.abc import Iterator

from uetproto.audit.reader.observed import Seen


class NoCrc(dict[tuple[int, int], bool]):
    """Every flow is known to have none, so that readers of packets without one are asked as well."""

    def get(self, *_: object) -> bool:  # type: ignore[override]
        return False


def classes(seen: Seen) -> Iterator[type]:
    yield type(seen.head)
    yield type(seen.ses)
    yield from map(type, seen.more)


def assert_same(quick: Seen | None, long: Seen) -> None:
    assert quick == long
    assert quick is not None
    assert list(classes(quick)) == list(classes(long))
