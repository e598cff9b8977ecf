# SPDX-License-Identifier: GPL-2.0-only
"""This module merges the interfaces of a capture: what several of them saw of one packet becomes one arrow.

Copies have the same bytes from the transport header on, as far as a switch leaves them, and different interfaces, and
are not further apart than a packet needs through the network. A second packet with the same bytes at an interface that
has seen the first one is another packet.
"""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

from uetproto.cli.ladder.rows import PLACE_BITS, Arrow, Host, LadderChoice, Sighting
from uetproto.cli.terminal import printable
from uetproto.wire.words.summary import stamp

WITHIN = 1_000_000
"""Largest time between the copies of a packet, in nanoseconds."""
_CABLE = re.compile(r"[^.\s]+\.[^.\s]+")
_ANSWERS = ("ack", "nack")
LEARNED = 20_000
"""Number of arrows from which it is learned whose interface is whose."""


@dataclass(slots=True)
class Places:
    """This class knows where interfaces are: at a host, or between hosts."""

    of_host: dict[Host, str] = field(default_factory=dict)
    """Name of the node of each host whose interface was captured."""
    between: dict[str, Host] = field(default_factory=dict)
    """Lifeline of each place between hosts."""
    lanes: tuple[Host, ...] = ()
    """Lifelines: hosts that send more data than they receive, places between hosts, and the other hosts."""

    @property
    def names(self) -> dict[Host, str]:
        """Return the names of the lifelines of places between hosts."""
        return {host: name for name, host in self.between.items()}


def node_of(name: str) -> str:
    """Return the node of an interface, as its name tells it: "h4" for its port "h4.0"."""
    node, _, port = printable(name).rpartition(".")
    return node if node and port.isdecimal() else printable(name)


def learned(arrows: Iterable[Arrow]) -> Places:
    """Return where the interfaces are, from the first arrows of a capture. The node that sees most packets of a host
    before others do is that of the host; a cable, such as "leaf0.spine1", is of none."""
    first: Counter[tuple[str, Host]] = Counter()
    seen: dict[object, str] = {}
    common: dict[str, set[Host]] = {}
    total: Counter[Host] = Counter()
    data: dict[Host, int] = {}
    for arrow in arrows:
        place = node_of(arrow.place)
        ends = {arrow.src, arrow.dst}
        common[place] = common.get(place, ends) & ends
        if seen.setdefault(arrow.same, place) == place:
            first[place, arrow.src] += 1
            total[arrow.src] += 1
            for host, step in ((arrow.src, 1), (arrow.dst, -1)):
                data[host] = data.get(host, 0) + (step if arrow.tone == "data" else 0)
    places = Places()
    taken: set[str] = set()
    for (place, host), number in sorted(first.items(), key=lambda item: (-item[1], item[0])):
        is_free = host in common[place] and host not in places.of_host and place not in taken
        if is_free and not _CABLE.fullmatch(place) and 2 * number > total[host]:
            places.of_host[host] = place
            taken.add(place)
    for place in common:
        if place not in taken:
            places.between[place] = (len(places.between), PLACE_BITS)
    senders = [host for host, balance in data.items() if balance > 0]
    places.lanes = (*senders, *places.between.values(), *(host for host in data if host not in senders))
    return places


class _Group:
    """This class holds the copies of a packet."""

    __slots__ = ("arrow", "copies")

    def __init__(self, arrow: Arrow) -> None:
        self.arrow = arrow
        self.copies = {arrow.place: arrow}


def _sighting(arrow: Arrow) -> Sighting:
    return Sighting(node_of(arrow.place), arrow.time_ns, arrow.index + 1, arrow.tone, "[ECN]" in arrow.text)


def merged(arrows: Iterable[Arrow], places: Places, within: int = WITHIN) -> Iterator[Arrow]:
    """Yield an arrow for the copies of each packet, in the order of their first ones. Arrows come in the order of
    their times."""
    waiting: deque[_Group] = deque()
    by_key: defaultdict[object, deque[_Group]] = defaultdict(deque)
    last_ns = 0
    for arrow in arrows:
        last_ns = max(last_ns, arrow.time_ns)
        while waiting and waiting[0].arrow.time_ns + within < last_ns:
            yield _finished(_gone(waiting, by_key), places, is_over=True)
        group = next((one for one in by_key[arrow.same] if arrow.place not in one.copies), None)
        if group is None:
            group = _Group(arrow)
            waiting.append(group)
            by_key[arrow.same].append(group)
        else:
            group.copies[arrow.place] = arrow
    while waiting:
        yield _finished(_gone(waiting, by_key), places, is_over=False)


def numbered_among(arrows: Iterable[Arrow], choice: LadderChoice) -> Iterator[Arrow]:
    """Yield the merged arrows of which a copy has a number that `choice` wants. Times count from the first of them."""
    start_ns = None
    for arrow in arrows:
        if arrow.marked or any(choice.covers(one.number - 1) for one in arrow.seen):
            start_ns = arrow.time_ns if start_ns is None else start_ns
            seen = tuple(one._replace(time_ns=one.time_ns - start_ns) for one in arrow.seen)
            yield replace(arrow, time_ns=arrow.time_ns - start_ns, seen=seen)


def _gone(waiting: deque[_Group], by_key: defaultdict[object, deque[_Group]]) -> _Group:
    group = waiting.popleft()
    same = by_key[group.arrow.same]
    same.remove(group)
    if not same:
        del by_key[group.arrow.same]
    return group


def _finished(group: _Group, places: Places, is_over: bool) -> Arrow:
    """Return the arrow of a packet. If `is_over`, no further copy can come: a copy that its receiver lacks is lost."""
    arrow = group.arrow
    sender, receiver = places.of_host.get(arrow.src), places.of_host.get(arrow.dst)
    order = {sender: -1, receiver: 1}
    copies = sorted(group.copies.values(), key=lambda one: (order.get(node_of(one.place), 0), one.time_ns))
    seen = [_sighting(one) for one in copies]
    tone, notes = arrow.tone, []
    if sender is not None and seen[0].place != sender:
        notes.append(f"[appeared at {seen[0].place}]")
    for before, one in pairwise(seen):
        if one.tone == "trimmed" and before.tone != "trimmed":
            tone = "trimmed"
            notes.append(f"[trimmed before {one.place}]")
        if one.is_marked and not before.is_marked:
            notes.append(f"[ECN before {one.place}]")
    is_lost = is_over and receiver is not None and all(one.place != receiver for one in seen)
    if is_lost and tone not in ("bad", "lost"):
        tone = "lost"
        notes.append(f"[lost behind {seen[-1].place}]" if len(seen) > 1 else "[lost]")
    told = [
        f"{'arrived' if one.place == receiver else one.place} {_later(one.time_ns - seen[0].time_ns)}"
        for one in seen[1:]
    ]
    judge = copies[-1 if arrow.tone in _ANSWERS else 0]  # the copy at the end that keeps the window
    return replace(
        copies[0],
        tone=tone,
        text=_with_times(" ".join((arrow.text, *notes)), told),
        columns=judge.columns,
        why=judge.why,
        marked=any(one.marked for one in copies),
        via=tuple(places.between[one.place] for one in seen if one.place in places.between),
        seen=tuple(seen),
        like=(arrow.like, tone, tuple(one.place for one in seen)),
    )


def _with_times(text: str, told: list[str]) -> str:
    """Return the text of an arrow with the times of its copies, behind the words of the transport header."""
    if not told:
        return text
    head, dot, rest = text.partition(" · ")
    return f"{head} · {', '.join(told)}{dot}{rest}"


def _later(ns: int) -> str:
    return f"{'+' if ns >= 0 else '−'}{stamp(abs(ns))}"
