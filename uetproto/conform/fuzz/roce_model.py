# SPDX-License-Identifier: GPL-2.0-only
"""This module writes random moves on queue pairs as the steps of a conformance test of RoCE, with what the pages allow
the peer to answer (roce.md §7 to §11).

As with UET (`model.py`), a move is a kind and four numbers, and what it means depends on the moves before it. The first
queue pair of a test gets the moves; a second one, of RC, looks at what they did to the memory.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from uetproto.conform.fuzz.model import NUMBERS, FuzzEpisode, FuzzMove, Step, WrittenEpisode, numbers_of
from uetproto.conform.roce.hand import HandPairs
from uetproto.conform.roce.packets import RoceFacts
from uetproto.wire.headers.roce import NO_CREDIT_LIMIT, count_of

_SLOTS = 6
"""Number of places of 8 bytes in the memory that moves use."""
_AREA, _STRIDE, _AREAS = 8192, 12288, 4
"""Offset in the memory at which messages of several packets begin, and the distance from one place to the next."""
_RECEIVES, _ROOM = 2, 64
"""Number of receives of a queue pair, and their bytes: of UD so many, else so many more than the path MTU."""
_TIMER = 1
_KEPT = 4
"""Number of READs and atomics whose duplicates are sent: a responder keeps the answers of few (roce.md §8.1)."""
_LONG_WAIT = 0x3F
"""Syndrome of an RNR NAK after which a requester waits for 0.49 s."""
_QUIET = {"se": 0, "a": 0, "rsvd": 0, "rsvd2": 0}
_STRANGE_KEY = "key + 77777"
Numbers = tuple[int, ...]


class ExecutedRequest(NamedTuple):
    """This tuple is a request that the peer has executed, and what a duplicate of it is answered."""

    psn: int
    step: Step
    reads: int | None = None
    """Place in the memory that it reads."""
    original: int | None = None
    """Value before an atomic."""


@dataclass(slots=True)
class PairModel:
    """This class knows what the peer has to know of a queue pair, and writes the steps of moves."""

    facts: RoceFacts
    kind: str
    made: bool
    """Whether the peer makes queue pairs for each test, with settings, and tells what its receives take."""
    steps: list[Step] = field(default_factory=list)
    psn: int = 0
    """Distance of the PSN that the peer expects."""
    msn: int = 0
    """Number of messages that the peer has completed, and `other` the distance of the PSN of the second queue pair."""
    other: int = 0
    left: int = _RECEIVES
    """Number of receives that are posted."""
    memory: dict[int, str] = field(default_factory=dict)
    """Bytes of places of the memory in hexadecimal digits, as far as they are known."""
    counters: dict[int, int] = field(default_factory=dict)
    """Numbers at places of the memory, as far as they are known."""
    areas: dict[int, list[str]] = field(default_factory=dict)
    """Names of the data of the packets at the places of long messages."""
    sizes: dict[int, str] = field(default_factory=dict)
    done: list[ExecutedRequest] = field(default_factory=list)
    first: int = 0
    """Distance of the PSN of the peer's next own request, and `completed` how many of them there were."""
    completed: int = 0
    waited_for: bool = False
    """Whether the peer waits for a message again for which it had no receive."""
    ended: bool = False
    names: int = 0
    used: set[str] = field(default_factory=set)
    """Rights that requests needed: write, read, atomic."""
    settings: dict[str, int] = field(default_factory=dict)
    """Settings of the queue pair that the last move wants."""
    needs: set[str] = field(default_factory=set)

    def lacks(self, name: str) -> bool:
        """Return whether the peer does not have something (`OPTIONAL`)."""
        return bool(self.facts.offers[name])

    def name(self) -> str:
        """Return a new name of data."""
        self.names += 1
        return f"d{self.names}"

    def slot(self, number: int) -> tuple[int, Step]:
        """Return a place in the memory, and the field that names it."""
        slot = number % _SLOTS
        return slot, {"va": f"addr + {8 * slot}"} if slot else {}

    def send(self, kind: str, psn: int | None = None, **step: Any) -> Step:
        """Write a request that asks for an ACK, with the PSN that comes next unless there is another."""
        found: Step = {"send": kind, "psn": at(self.psn if psn is None else psn), "a": 1, **step}
        self.steps.append(found)
        self.use(kind)
        return found

    def use(self, kind: str) -> None:
        """Note the right that a request needs."""
        rights = {"rdma_write": "write", "rdma_read": "read", "fetch_add": "atomic", "compare_swap": "atomic"}
        self.used |= {right for begin, right in rights.items() if kind.startswith(begin)}

    def expect(self, kind: str, psn: int | None = None, **values: Any) -> Step:
        found: Step = {"expect": kind, "psn": at(self.psn if psn is None else psn), **values}
        self.steps.append(found)
        return found

    def nothing(self) -> None:
        self.steps.append({"expect": "nothing"})

    def acked(self, psn: int | None = None) -> None:
        """Write that the peer acknowledges, up to the PSN before the next one."""
        credits = {}
        if self.made:
            most = max(code for code in range(NO_CREDIT_LIMIT) if count_of(code) <= self.left)
            credits = {"credits": [f"0 .. {most}", NO_CREDIT_LIMIT]}
        self.expect("ack", self.psn - 1 if psn is None else psn, msn=msn(self.msn), padcnt=0, **_QUIET, **credits)

    def take(self, psns: int = 1, done: ExecutedRequest | None = None) -> None:
        """Note that the peer executes a message of so many packets."""
        self.psn += psns
        self.msn += 1
        self.waited_for = False
        if done is not None:
            self.done.append(done)

    def store(self, slot: int, data: str) -> None:
        self.memory[slot] = data
        self.counters.pop(slot, None)
        if len({*bytes.fromhex(data)}) == 1:  # the byte order of numbers is the peer's
            self.counters[slot] = int(data, 16)

    def count(self, slot: int, number: int) -> None:
        self.memory.pop(slot, None)
        self.counters[slot] = number

    def received(self, many: int, **values: Any) -> None:
        """Write what the receives of the peer have taken."""
        if self.made:
            self.steps.append({"received": many, **values})

    def prove(self, slot: int) -> None:
        """Read a place through the second queue pair, if its bytes are known."""
        if not self.made or slot not in self.memory or self.lacks("read"):
            return
        _, where = self.slot(slot)
        psn = behind("start2", self.other)
        self.steps += [
            {"send": "rdma_read_request", "on": 2, "psn": psn, "a": 1, "dmalen": 8, **where},
            {"expect": "rdma_read_response_only", "on": 2, "psn": psn, "data": self.memory[slot]},
        ]
        self.other += 1


def at(distance: int) -> str:
    """Return the text of a PSN."""
    return behind("start", distance)


def msn(number: int) -> str:
    """Return the text of an MSN."""
    return behind("msn", number)


def behind(base: str, distance: int) -> str:
    """Return the text of a number that is so far behind another one."""
    return base if not distance else f"{base} {'+' if distance > 0 else '-'} {abs(distance)}"


def _octets(numbers: Numbers) -> str:
    """Return 8 bytes that follow from numbers, often with one byte all over."""
    if numbers[0] % 2:
        return f"{numbers[1] & 0xFF:02x}" * 8
    return b"".join(number.to_bytes(2, "big") for number in numbers).hex()


# Moves: each writes its steps, or none if it is not possible now ------------------------------------------------------


_ODD: tuple[Step, ...] = (
    {}, {}, {}, {"m": 0}, {"fecn": 1, "becn": 1}, {"rsvd": 63, "rsvd2": 127}, {"entropy": 61234}, {"se": 1},
    {"p_key": "p_key - 32768"},
)  # fmt: skip
"""What a right request may have beside."""


def _write(model: PairModel, n: Numbers) -> None:
    """Write 8 bytes."""
    slot, where = model.slot(n[2])
    data = _octets(n)
    step = model.send("rdma_write_only", data=data, **where, **_ODD[n[3] % len(_ODD)])
    model.store(slot, data)
    model.take(done=ExecutedRequest(model.psn, step))
    model.acked()


def _read(model: PairModel, n: Numbers) -> None:
    """Read what was written before, or the first bytes of it."""
    if not model.memory or model.lacks("read"):
        return
    slots = sorted(model.memory)
    slot, where = model.slot(slots[n[0] % len(slots)])
    size = 8 if n[1] % 4 else 1 + n[1] // 4 % 8
    step = model.send("rdma_read_request", dmalen=size, **where)
    model.take(done=ExecutedRequest(model.psn, step, reads=slot))
    data = model.memory[slot][: 2 * size]
    model.expect("rdma_read_response_only", model.psn - 1, msn=msn(model.msn), data=data, padcnt=-size % 4, **_QUIET)


def _add(model: PairModel, n: Numbers) -> None:
    """Add to a number."""
    known = sorted(model.counters)
    if not known or model.lacks("atomic"):
        return
    slot, where = model.slot(known[n[0] % len(known)])
    old, operand = model.counters[slot], int(_octets(n), 16)
    step = model.send("fetch_add", swapdt=operand, **where)
    model.count(slot, (old + operand) % (1 << 64))
    _atomic_done(model, step, old)


def _swap(model: PairModel, n: Numbers) -> None:
    """Compare a number and swap it if it is equal."""
    known = sorted(model.counters)
    if not known or model.lacks("atomic"):
        return
    slot, where = model.slot(known[n[0] % len(known)])
    old, new = model.counters[slot], int(_octets(n), 16)
    compare = old if n[1] % 2 else old ^ 1
    step = model.send("compare_swap", cmpdt=compare, swapdt=new, **where)
    model.count(slot, new if compare == old else old)
    _atomic_done(model, step, old)


def _atomic_done(model: PairModel, step: Step, old: int) -> None:
    model.take(done=ExecutedRequest(model.psn, step, original=old))
    model.expect("atomic_acknowledge", model.psn - 1, msn=msn(model.msn), origremdt=old, **_QUIET)


def _long(model: PairModel, n: Numbers) -> None:
    """Write two or three packets, and read them again."""
    area, packets, size = n[0] % _AREAS, 2 + n[1] % 2, 1 + n[2] % 64
    names = [model.name() for _ in range(packets)]
    whole = " + ".join(["mtu"] * (packets - 1) + [str(size)])
    where = {"va": f"addr + {_AREA + area * _STRIDE}"}
    if model.kind == "rc":
        last = model.psn + packets - 2
        model.steps.append({"allow": "ack", "psn": f"{at(model.psn)} .. {at(last)}", "msn": msn(model.msn)})
    for number, name in enumerate(names):
        kind = ("first", "middle", "last")[2 if number == packets - 1 else min(number, 1)]
        told: Step = {"send": f"rdma_write_{kind}", "psn": at(model.psn + number), "data": "mtu", "as": name}
        told |= {"dmalen": whole, **where} if kind == "first" else {}
        model.use("rdma_write")
        told |= {"a": 1, "data": size} if kind == "last" else {}
        model.steps.append(told)
    model.areas[area], model.sizes[area] = names, whole
    model.take(packets)
    if model.kind == "rc":
        model.acked()
        if n[3] % 2:
            _read_long(model, area, 1)
    elif model.made:
        _read_long(model, area, 2)


def _read_area(model: PairModel, n: Numbers) -> None:
    """Read what a long message has written."""
    if model.areas:
        areas = sorted(model.areas)
        _read_long(model, areas[n[0] % len(areas)], 1)


def _read_long(model: PairModel, area: int, on: int) -> None:
    """Read a place of long messages through a queue pair."""
    if model.lacks("read"):
        return
    names = model.areas[area]
    base, psn = ("start", model.psn) if on == 1 else ("start2", model.other)
    common = {} if on == 1 else {"on": 2}
    if on == 1:
        model.use("rdma_read")
    where = f"addr + {_AREA + area * _STRIDE}"
    model.steps.append({
        "send": "rdma_read_request", "psn": behind(base, psn), "a": 1, "va": where, "dmalen": model.sizes[area],
        **common,
    })  # fmt: skip
    for number, name in enumerate(names):
        kind = ("first", "middle", "last")[2 if number == len(names) - 1 else min(number, 1)]
        told = {"msn": msn(model.msn + 1)} if on == 1 and kind != "middle" else {}
        model.steps.append({
            "expect": f"rdma_read_response_{kind}", "psn": behind(base, psn + number), "data": f"@{name}", **told,
            **common,
        })  # fmt: skip
    if on == 1:
        model.take(len(names))
    else:
        model.other += len(names)


def _send(model: PairModel, n: Numbers) -> None:
    """Send a message of one packet, with or without immediate, to a receive, if there is one."""
    if not model.made:
        return
    with_immediate, size, name = n[0] % 2 and not model.lacks("immediate"), n[1] % 25 if n[1] % 4 else 0, model.name()
    kind, more = ("send_only_with_immediate", {"immdt": n[2]}) if with_immediate else ("send_only", {})
    solicited = n[3] % 2
    told: Step = {"data": size, "as": name, **more, **({"se": 1} if solicited else {})}
    step = model.send(kind, **told)
    if not model.left:
        _no_receive(model)
        return
    model.left -= 1
    behind_grh = {"from": 40, "length": size + 40} if model.kind == "ud" else {"length": size}
    again = {**step, "data": f"@{name}"}
    again.pop("as")
    model.take(done=ExecutedRequest(model.psn, again))
    if model.kind == "rc":
        model.acked()
    model.received(1, data=f"@{name}", se=solicited, **behind_grh, **more)


def _send_long(model: PairModel, n: Numbers) -> None:
    """Send a message of two packets, if there is a receive."""
    if not model.made or not model.left:
        return
    size, immediate = 1 + n[1] % _ROOM, n[0] % 2 and not model.lacks("immediate")
    if model.kind == "rc":
        model.steps.append({"allow": "ack", "psn": at(model.psn), "msn": msn(model.msn)})
    last = "send_last_with_immediate" if immediate else "send_last"
    more = {"immdt": n[2]} if immediate else {}
    model.steps.append({"send": "send_first", "psn": at(model.psn), "data": "mtu"})
    model.send(last, model.psn + 1, data=size, **more)
    model.left -= 1
    model.take(2)
    if model.kind == "rc":
        model.acked()
    model.received(1, length=f"mtu + {size}", **more)


def _no_receive(model: PairModel) -> None:
    """Write what a peer does with a message for which it has no receive."""
    if model.kind == "rc":
        model.expect("rnr_nak", msn=msn(model.msn), timer=_TIMER)
        model.waited_for = True
        return
    model.psn += 1
    model.received(0)


def _immediate(model: PairModel, n: Numbers) -> None:
    """Write 8 bytes with immediate, which takes a receive."""
    if not model.made or (model.kind == "uc" and not model.left) or model.lacks("immediate"):
        return
    slot, where = model.slot(n[2])
    data = _octets(n)
    step = model.send("rdma_write_only_with_immediate", data=data, immdt=n[3], **where)
    if not model.left:
        _no_receive(model)
        model.prove(slot)
        return
    model.left -= 1
    model.store(slot, data)
    model.take(done=ExecutedRequest(model.psn, step))
    if model.kind == "rc":
        model.acked()
    model.received(1, immdt=n[3], length=8)
    model.prove(slot)


def _again(model: PairModel, n: Numbers) -> None:
    """Send a duplicate of a request that was executed."""
    if not model.done:
        return
    answers = [one for one in model.done if one.reads is not None or one.original is not None][-_KEPT:]
    one = model.done[max(-1 - n[0] % 8, -len(model.done))]  # from the end, so that it stays if others are taken out
    if n[1] % 3 == 0 and one.reads is not None:  # it asks for other memory
        model.steps.append({**one.step, "va": f"addr + {_AREA - 64}"})
        model.nothing()
        return
    if (one.reads is not None or one.original is not None) and one not in answers:
        one = answers[n[0] % len(answers)]
    model.steps.append(dict(one.step))
    if one.original is not None:
        model.expect("atomic_acknowledge", one.psn, origremdt=one.original, **_QUIET)
    elif one.reads is not None:
        data = model.memory.get(one.reads)
        told = {} if data is None else {"data": data[: 2 * one.step["dmalen"]]}
        model.expect("rdma_read_response_only", one.psn, **told, **_QUIET)
    else:
        model.acked()
        slots = [*model.memory]
        if one.step["send"] == "rdma_write_only" and slots:  # it was not executed again
            where = one.step.get("va", "addr").removeprefix("addr").replace(" + ", "")
            model.prove(int(where or 0) // 8)


def _ahead(model: PairModel, n: Numbers) -> None:
    """Send a request above a gap, which is refused once; then the one that is missing."""
    if model.waited_for:  # then the pages allow silence, too
        return
    _, where = model.slot(n[2])
    model.send("rdma_write_only", model.psn + 1 + n[0] % 3, data=_octets(n), **where)
    model.expect("nak", nak="PSN_SEQUENCE_ERROR", msn=msn(model.msn), **_QUIET)
    _write(model, (*n[:2], n[2] + n[1] % 3, n[3]))
    model.prove(n[2] % _SLOTS)


def _quiet(model: PairModel, n: Numbers) -> None:
    """Write several times, and ask for an ACK at last."""
    many = 1 + n[0] % 3
    last = model.psn + many - 1
    model.steps.append({"allow": "ack", "psn": f"{at(model.psn)} .. {at(last)}"})
    for number in range(many):
        slot, where = model.slot(n[2] + number)
        data = _octets((*n[:3], n[3] + number & 0xFFFF))
        model.steps.append({"send": "rdma_write_only", "psn": at(model.psn), "data": data, **where})
        model.store(slot, data)
        model.take()
    _write(model, n)


def _behind(model: PairModel, n: Numbers) -> None:
    """Read a place of long messages, and write at once: no ACK overtakes the answer."""
    if not model.areas or model.lacks("read"):
        return
    areas = sorted(model.areas)
    begun = len(model.steps)
    _read_long(model, areas[n[0] % len(areas)], 1)
    answers = model.steps[begun + 1 :]
    del model.steps[begun + 1 :]
    _write(model, n)
    model.steps[-1:] = [*answers, model.steps[-1]]


def _marked(model: PairModel, n: Numbers) -> None:
    """Write with a mark of congestion, for which a CNP comes, once in a test; or without one, for which none comes."""
    if model.facts.offers["cnp"]:
        return
    slot, where = model.slot(n[2])
    data = _octets(n)
    marked = not model.needs and n[0] % 2
    model.needs.add("cnp")
    model.send("rdma_write_only", data=data, ecn=3 if marked else 1 + n[1] % 2, **where)
    model.store(slot, data)
    model.take()
    model.acked()
    if marked:
        model.steps[-1:] = [{"all": [model.steps[-1], {"expect": "cnp", "becn": 1, "psn": 0, "a": 0, "se": 0}]}]
    elif n[3] % 4 == 0:
        model.nothing()


def _answers(model: PairModel, n: Numbers) -> None:
    """Send answers to requests that the peer did not send, or a CNP."""
    if n[0] % 2:
        model.steps.append({"send": "cnp", "psn": 0, "becn": 1, "m": 0})
    else:
        psn = {"psn": 17}
        model.steps += [
            {"send": "acknowledge", **psn, "syndrome": (0x1F, 0x60, 0x62)[n[1] % 3], "msn": 1},
            {"send": "rdma_read_response_only", **psn, "syndrome": NO_CREDIT_LIMIT, "msn": 1, "data": 8},
        ]
    model.nothing()


def _invalidate(model: PairModel, n: Numbers) -> None:
    """Send with invalidate: then the key is none."""
    if not model.made or not model.left or model.lacks("invalidate"):
        return
    model.send("send_only_with_invalidate", data=n[1] % 25, r_key="key")
    model.left -= 1
    model.take()
    model.acked()
    model.received(1, length=n[1] % 25)
    model.send("rdma_write_only", data=_octets(n))
    model.expect("nak", nak=_ACCESS, msn=msn(model.msn), **_QUIET)
    model.ended = True


def _forbidden(model: PairModel, n: Numbers) -> None:
    """Ask a queue pair for what it does not allow, if nothing of the kind was asked before."""
    if not model.made:
        return
    asked: dict[str, tuple[str, Step]] = {
        "atomic": ("fetch_add", {"swapdt": 1}), "read": ("rdma_read_request", {"dmalen": 4}),
        "write": ("rdma_write_only", {"data": 4}),
    }  # fmt: skip
    for right in [*asked][n[0] % 3 :]:
        if (
            right in model.used
            or (model.kind == "uc" and right != "write")
            or (right != "write" and model.lacks(right))
        ):
            continue
        kind, values = asked[right]
        none_of_both = not model.used & {"read", "atomic"} and right != "write"
        model.settings = {"access": {"atomic": 7, "read": 11, "write": 13}[right]}
        if none_of_both and n[1] % 2:
            model.settings = {"max_dest_rd_atomic": 0}
        if model.kind == "uc":
            _forbidden_write(model, n)
            continue
        model.send(kind, **values)
        model.expect("nak", nak=_INVALID, msn=msn(model.msn), **_QUIET)
        break
    else:
        model.ended = bool(model.settings)
        return
    model.ended = True


def _forbidden_write(model: PairModel, n: Numbers) -> None:
    """Write over UC without the right, and look that nothing is written."""
    slot, where = model.slot(n[2])
    data, psn = _octets(n), behind("start2", model.other)
    model.steps += [
        {"send": "rdma_write_only", "on": 2, "psn": psn, "a": 1, "data": data, **where},
        {"expect": "ack", "on": 2, "psn": psn},
    ]  # fmt: skip
    model.other += 1
    model.store(slot, data)
    model.send("rdma_write_only", data=f"{int(data, 16) ^ 1:016x}", **where)
    model.psn += 1
    model.nothing()
    model.prove(slot)


def _zero(model: PairModel, n: Numbers) -> None:
    """Write or read nothing, with a key that is none."""
    common: Step = {"r_key": _STRANGE_KEY, "va": 0}
    if n[0] % 2 or model.lacks("read"):
        model.send("rdma_write_only", **common)
        model.take()
        model.acked()
    else:
        model.send("rdma_read_request", dmalen=0, **common)
        model.take()
        model.expect("rdma_read_response_only", model.psn - 1, msn=msn(model.msn), data=0)


_UNSEEN: tuple[tuple[str, Step], ...] = (
    ("rdma_write_only", {"icrc": "wrong"}), ("rdma_write_only", {"tver": 1}),
    ("rdma_write_only", {"destqp": "qp + 54321"}), ("rdma_write_only", {"p_key": "p_key - 1"}),
    ("rdma_write_only", {"p_key": 0x8000}), ("rdma_write_only", {"cut": 8}),
)  # fmt: skip
"""Requests that a peer drops in silence."""
_OTHER_SERVICE = {"rc": ("uc", "ud"), "uc": ("rc", "ud"), "ud": ("uc", "rc")}


def _unseen(model: PairModel, n: Numbers) -> None:
    """Send what the peer drops in silence, and look that it has left no trace."""
    slot, where = model.slot(n[2])
    data = _octets(n)
    kind, wrong = _UNSEEN[n[0] % len(_UNSEEN)] if n[0] % 8 else ("rdma_write_only", {})
    if not wrong:
        other = _OTHER_SERVICE[model.kind][n[1] % 2]
        kind, wrong = ("send_only" if other == "ud" else kind), {"transport": other}
    if model.kind == "ud" or kind == "send_only":
        kind, where = "send_only", {}
    model.send(kind, data=data, **where, **wrong)
    if model.kind == "ud":
        model.received(0)
    else:
        model.nothing()
    model.prove(slot)


def _report(model: PairModel, n: Numbers) -> None:
    """Let the peer post work of its own, and answer it, sometimes after a refusal that makes it come again."""
    if not model.made or model.facts.offers["posts"]:
        return
    name = model.name()
    here = behind("first", model.first)
    kind = n[0] % (2 if model.lacks("read") else 3 if model.lacks("atomic") else 4)
    asked: dict[str, Any]
    if kind == 0:
        size = 1 + n[1] % 64
        model.steps.append({"post": "send", "data": size, "as": name})
        asked = {"expect": "send_only", "psn": here, "a": 1, "data": f"@{name}"}
    elif kind == 1:
        size = 1 + n[1] % 64
        model.steps.append({"post": "rdma_write", "data": size, "as": name})
        asked = {"expect": "rdma_write_only", "psn": here, "a": 1, "data": f"@{name}", "dmalen": size}
        asked |= {"va": "our_addr", "r_key": "our_key"}
    elif kind == 2:
        size = 1 + n[1] % 64
        model.steps.append({"post": "rdma_read", "length": size})
        asked = {"expect": "rdma_read_request", "psn": here, "dmalen": size, "va": "our_addr", "r_key": "our_key"}
    else:
        model.steps.append({"post": "atomic_fetch_and_add", "compare_add": n[1]})
        asked = {"expect": "fetch_add", "psn": here, "swapdt": n[1], "va": "our_addr", "r_key": "our_key"}
    model.steps.append(asked)
    refused = _LONG_WAIT if n[2] % 32 == 31 else {0: 0x60, 1: 0x20 | _TIMER, 2: 0x62, 3: 0x61}.get(n[2] % 8)
    nak: Step = {"send": "acknowledge", "psn": here, "syndrome": refused, "msn": model.completed}
    if refused in (0x61, 0x62):
        status = "REM_ACCESS_ERR" if refused == 0x62 else "REM_INV_REQ_ERR"
        model.steps += [nak, {"completed": 1, "status": status}]
        model.ended = True
        return
    if refused is not None:
        waits: list[Step] = [{"expect": "nothing"}] if refused == _LONG_WAIT else []
        model.steps += [nak, *waits, dict(asked)]
    model.first += 1
    model.completed += 1
    answer: Step = {"send": "acknowledge", "psn": here, "syndrome": NO_CREDIT_LIMIT, "msn": model.completed}
    done: Step = {"completed": 1, "status": "SUCCESS"}
    if kind == 2:
        answer |= {"send": "rdma_read_response_only", "data": asked["dmalen"], "as": name}
        done["data"] = f"@{name}"
    elif kind == 3:
        answer |= {"send": "atomic_acknowledge", "origremdt": n[3]}
    model.steps += [answer, done]


def _posted_long(model: PairModel, n: Numbers) -> None:
    """Let the peer post a WRITE of several packets, or a READ of two."""
    if not model.made or model.facts.offers["posts"]:
        return
    name, size = model.name(), 1 + n[1] % 64
    first = model.first
    if n[0] % 2 and not model.lacks("read"):
        model.steps.append({"post": "rdma_read", "length": f"mtu + {size}"})
        asked: Step = {"expect": "rdma_read_request", "psn": behind("first", first), "dmalen": f"mtu + {size}"}
        packets = [("first", "mtu"), ("last", size)]
        model.steps.append(asked)
        model.steps += [
            {"send": f"rdma_read_response_{kind}", "psn": behind("first", first + number), "data": data,
             **({} if kind == "middle" else {"syndrome": NO_CREDIT_LIMIT, "msn": model.completed + 1})}
            for number, (kind, data) in enumerate(packets)
        ]  # fmt: skip
        model.first += 2
    else:
        with_immediate = n[2] % 2 and not model.lacks("immediate")
        more = {"imm_data": n[3]} if with_immediate else {}
        kind = "rdma_write_with_imm" if with_immediate else "rdma_write"
        model.steps.append({"post": kind, "data": f"mtu + mtu + {size}", "as": name, **more})
        last = "rdma_write_last_with_immediate" if with_immediate else "rdma_write_last"
        told: list[tuple[str, Step]] = [
            ("rdma_write_first", {"dmalen": f"mtu + mtu + {size}", "va": "our_addr", "r_key": "our_key"}),
            ("rdma_write_middle", {}), (last, {"a": 1, **({"immdt": n[3]} if with_immediate else {})}),
        ]  # fmt: skip
        model.steps += [
            {"expect": one, "psn": behind("first", first + number), "data": f"@{name}.{number + 1}", **values}
            for number, (one, values) in enumerate(told)
        ]
        model.first += 3
        model.steps.append({
            "send": "acknowledge", "psn": behind("first", first + 2), "syndrome": NO_CREDIT_LIMIT,
            "msn": model.completed + 1,
        })  # fmt: skip
    model.completed += 1
    model.steps.append({"completed": 1, "status": "SUCCESS"})
    if n[0] % 4:
        _report(model, (0, n[1], 7, n[3]))


def _posted_in_part(model: PairModel, n: Numbers) -> None:
    """Let the peer post a READ, and leave a packet of the answer out: it asks for the rest."""
    if not model.made or model.facts.offers["posts"] or model.lacks("read"):
        return
    first, size, told = model.first, 1 + n[1] % 64, {"syndrome": NO_CREDIT_LIMIT, "msn": model.completed + 1}
    whole = f"mtu + mtu + {size}"
    psns = [behind("first", first + number) for number in range(3)]
    answer = {"send": "rdma_read_response_first", "data": "mtu", **told}
    last = {"send": "rdma_read_response_last", "psn": psns[2], "data": size, **told}
    where = {"va": "our_addr", "r_key": "our_key"}
    model.steps += [
        {"post": "rdma_read", "length": whole},
        {"expect": "rdma_read_request", "psn": psns[0], "dmalen": whole, **where},
        {**answer, "psn": psns[0]}, last,
        {"expect": "rdma_read_request", "psn": psns[1], **where, "va": "our_addr + mtu", "dmalen": f"mtu + {size}"},
        {**answer, "psn": psns[1]}, last, {"completed": 1, "status": "SUCCESS"},
    ]  # fmt: skip
    model.first += 3
    model.completed += 1


_ACCESS, _INVALID = "REMOTE_ACCESS_ERROR", "INVALID_REQUEST"
_ONE: tuple[tuple[str, Step, Any], ...] = (
    ("rdma_write_only", {"r_key": _STRANGE_KEY, "data": 8}, _ACCESS),
    ("rdma_read_request", {"r_key": _STRANGE_KEY, "dmalen": 8}, _ACCESS),
    ("fetch_add", {"r_key": _STRANGE_KEY, "swapdt": 1}, _ACCESS),
    ("rdma_write_only", {"va": "addr + length - 4", "data": 8}, _ACCESS),
    ("rdma_read_request", {"va": "addr + length", "dmalen": 1}, _ACCESS),
    ("rdma_write_only", {"va": "addr - 4", "data": 8}, _ACCESS),
    ("rdma_write_first", {"va": "addr + length - mtu", "dmalen": "mtu + 4", "data": "mtu"}, _ACCESS),
    ("fetch_add", {"va": "addr + 4", "swapdt": 1}, _INVALID),
    ("send_middle", {"data": "mtu"}, _INVALID),
    ("rdma_write_last", {"data": 4}, _INVALID),
    ("rdma_write_first", {"dmalen": "mtu + 4", "data": "mtu - 4"}, _INVALID),
    ("rdma_write_only", {"dmalen": 12, "data": 8}, _INVALID),
    ("send_only", {"opcode": 0x1F, "data": 4}, _INVALID),
    ("rdma_write_only", {"r_key": "read_only_key", "va": "read_only_addr", "data": 4}, _ACCESS),
    ("rdma_read_request", {"r_key": "write_only_key", "va": "write_only_addr", "dmalen": 4}, _ACCESS),
    ("rdma_read_request", {"r_key": "other_domain_key", "va": "other_domain_addr", "dmalen": 4}, _ACCESS),
)  # fmt: skip
"""Requests of one packet that take the queue pair down, and the NAK."""
_TWO: tuple[tuple[str, Step, str, Step], ...] = (
    ("send_first", {"data": "mtu"}, "send_first", {"data": "mtu"}),
    ("send_first", {"data": "mtu"}, "send_last", {"data": _ROOM + 4}), ("send_first", {"data": "mtu"}, "send_last", {}),
    ("send_first", {"data": "mtu"}, "rdma_write_only", {"data": 4}),
    ("send_first", {"data": "mtu"}, "rdma_read_request", {"dmalen": 4}),
    ("rdma_write_first", {"dmalen": "mtu + 4", "data": "mtu"}, "send_only", {"data": 4}),
    ("rdma_write_first", {"dmalen": "mtu + 4", "data": "mtu"}, "fetch_add", {"swapdt": 1}),
    ("rdma_write_first", {"dmalen": "mtu + 100", "data": "mtu"}, "rdma_write_last", {"data": 96}),
    ("rdma_write_first", {"dmalen": "mtu + mtu + 4", "data": "mtu"}, "rdma_write_middle", {"data": "mtu - 8"}),
)  # fmt: skip
"""Requests of two packets of which the second takes the queue pair down."""


_WHOSE = {"rdma_read_request": "read", "fetch_add": "atomic"}
"""What the peer needs for an operation."""


def _fatal(model: PairModel, n: Numbers) -> None:
    """Send what takes the queue pair down; nothing is executed behind it."""
    if not model.made:
        return
    at_all = n[0] % (len(_ONE) + len(_TWO))
    if at_all < len(_ONE):
        kind, wrong, nak = _ONE[at_all]
        if model.lacks(_WHOSE.get(kind, "data")):
            return
        if any(model.facts.offers[name] for name in ("read_only", "write_only", "other_domain")
               if str(wrong.get("r_key", "")).startswith(name)):  # fmt: skip
            return
        model.send(kind, **wrong)
        model.expect("nak", nak=nak, msn=msn(model.msn), **_QUIET)
    else:
        kind, before, then, wrong = _TWO[at_all - len(_ONE)]
        if model.lacks(_WHOSE.get(then, "data")):
            return
        if not model.left and kind == "send_first":
            return
        area = {"va": f"addr + {_AREA}"} if kind == "rdma_write_first" else {}
        model.areas.pop(0, None)
        model.steps.append({"allow": "ack", "psn": at(model.psn), "msn": msn(model.msn)})
        model.steps.append({"send": kind, "psn": at(model.psn), **before, **area})
        model.send(then, model.psn + 1, **wrong)
        model.expect("nak", model.psn + 1, nak=_INVALID, msn=msn(model.msn), **_QUIET)
    slot, where = model.slot(n[2])
    model.send("rdma_write_only", data=_octets(n), **where)
    model.nothing()
    model.prove(slot)
    model.ended = True


def _unreliable_write(model: PairModel, n: Numbers) -> None:
    """Write over UC, at any PSN, and look through the second queue pair."""
    slot, where = model.slot(n[2])
    data = _octets(n)
    model.psn += n[1] % 5 if n[1] % 3 == 0 else 0
    model.send("rdma_write_only", data=data, **where)
    model.store(slot, data)
    model.take()
    model.prove(slot)


_UNRELIABLE: tuple[tuple[str, Step], ...] = (
    ("rdma_write_only", {"r_key": _STRANGE_KEY, "data": 8}), ("rdma_write_only", {"dmalen": 12, "data": 8}),
    ("rdma_read_request", {"dmalen": 8}), ("fetch_add", {"swapdt": 1}), ("send_middle", {"data": 12}),
    ("rdma_write_last", {"data": 4}), ("send_only_with_invalidate", {"data": 4}),
)  # fmt: skip
"""Requests that UC drops in silence."""


def _dropped(model: PairModel, n: Numbers) -> None:
    """Send what UC or UD drop; the queue pair stays up."""
    if model.kind == "ud":
        wrong: tuple[Step, ...] = (
            {"q_key": "q_key + 1"}, {"p_key": "p_key - 1"}, {"icrc": "wrong"}, {"data": _ROOM + 4},
        )  # fmt: skip
        if n[0] % 5 == 4:
            model.send("send_first", data=8)
        else:
            told: Step = {"data": 8} | wrong[n[0] % 5]
            model.send("send_only", **told)
        model.psn += 1
        model.received(0)
        return
    kind, values = _UNRELIABLE[n[0] % len(_UNRELIABLE)]
    model.send(kind, **values)
    model.psn += 1
    if n[1] % 2:
        model.nothing()
    model.received(0)
    model.prove(n[2] % _SLOTS)


def _lost(model: PairModel, n: Numbers) -> None:
    """Send a message over UC of which a packet is missing: it takes no receive."""
    if not model.made or not model.left:
        return
    if n[0] % 2:
        model.steps.append({"send": "send_last", "psn": at(model.psn + 1), "data": 4})
    else:
        model.steps += [
            {"send": "rdma_write_first", "psn": at(model.psn), "dmalen": "mtu + 4", "data": "mtu",
             "va": f"addr + {_AREA}"},
            {"send": "rdma_write_last_with_immediate", "psn": at(model.psn + 2), "immdt": n[2], "data": 4},
        ]  # fmt: skip
        model.areas.pop(0, None)
    model.psn += 3
    model.received(0)


def _datagram(model: PairModel, n: Numbers) -> None:
    """Send a datagram with any PSN."""
    if n[1] % 3 == 0:
        model.psn += n[2] % 7 - 3
    _send(model, (n[0], n[1], n[2], n[3]))


_Write = Callable[[PairModel, Numbers], None]
ROCE_MOVES: Mapping[str, Mapping[str, tuple[int, _Write]]] = {
    "rc": {
        "write": (8, _write), "read": (6, _read), "add": (5, _add), "swap": (3, _swap), "long": (4, _long),
        "read_area": (2, _read_area), "send": (5, _send), "send_long": (2, _send_long), "immediate": (3, _immediate),
        "again": (9, _again), "ahead": (3, _ahead), "quiet": (2, _quiet), "zero": (1, _zero), "unseen": (2, _unseen),
        "report": (5, _report), "posted_long": (3, _posted_long), "posted_in_part": (1, _posted_in_part),
        "fatal": (4, _fatal), "behind": (2, _behind), "marked": (2, _marked), "answers": (1, _answers),
        "invalidate": (1, _invalidate), "forbidden": (2, _forbidden),
    },
    "uc": {
        "write": (6, _unreliable_write), "send": (6, _send), "send_long": (2, _send_long), "long": (3, _long),
        "immediate": (3, _immediate), "dropped": (5, _dropped), "lost": (3, _lost), "unseen": (1, _unseen),
        "forbidden": (1, _forbidden),
    },
    "ud": {"write": (8, _datagram), "dropped": (4, _dropped), "unseen": (1, _unseen)},
}  # fmt: skip
"""Moves of each service: how often each is drawn, and what writes its steps. The first one stands for the others."""
_WRAPS = (0xFFFFFF, 0xFFFFFE, 0xFFFFF8, 0)
_SHARES = ("rc",) * 6 + ("uc",) * 2 + ("ud",) * 2


def drawn(rng: random.Random, length: int, facts: RoceFacts) -> FuzzEpisode:
    """Return a random episode with at most so many moves; a peer that does not tell what it receives gets RC alone."""
    kinds_had = [kind for kind in _SHARES if kind == "rc" or not facts.offers[kind]]
    kind = rng.choice(kinds_had) if _is_made(facts) else "rc"
    start = rng.choice(_WRAPS) if rng.randrange(2) == 0 and _is_made(facts) else None
    moves = ROCE_MOVES[kind]
    kinds = rng.choices([*moves], [weight for weight, _ in moves.values()], k=rng.randint(2, length))
    return FuzzEpisode(kind, start, tuple(FuzzMove(kind, numbers_of(rng)) for kind in kinds))


def written(episode: FuzzEpisode, facts: RoceFacts) -> WrittenEpisode:
    """Return an episode as a conformance test has it."""
    model = PairModel(facts, episode.mode, _is_made(facts))
    moves = ROCE_MOVES[episode.mode]
    for move in episode.moves:
        if model.ended:
            break
        moves[move.kind][1](model, move.numbers)
    if not model.made:
        return WrittenEpisode(model.steps, ({"kind": episode.mode},), tuple(sorted(model.needs)))
    receive_size = _ROOM + (40 if episode.mode == "ud" else facts.path_mtu)
    main: dict[str, Any] = {"kind": episode.mode, "receives": _RECEIVES, "receive_size": receive_size}
    main |= {"min_rnr_timer": _TIMER, "timeout": 20} if episode.mode == "rc" else {}
    main |= {} if episode.start is None else {"start": episode.start, "first": episode.start}
    uses_second = any(step.get("on") == 2 for step in model.steps)
    pairs = (main | model.settings, {"kind": "rc"})[: 1 + uses_second]
    return WrittenEpisode(model.steps, pairs, tuple(sorted(model.needs)))


def simpler(episode: FuzzEpisode) -> list[FuzzEpisode]:
    """Return the episode with simpler settings."""
    wrapped = [] if episode.start is None else [episode._replace(start=_WRAPS[0])]
    return [episode._replace(start=None), *wrapped]


def plain(episode: FuzzEpisode) -> FuzzMove:
    """Return the move that stands for any other one."""
    return FuzzMove(next(iter(ROCE_MOVES[episode.mode])), (0,) * NUMBERS)


def _is_made(facts: RoceFacts) -> bool:
    """Return whether the peer makes queue pairs for each test, and tells what its receives take."""
    return not isinstance(facts.pairs, HandPairs) and not facts.offers["reports"]
