# SPDX-License-Identifier: GPL-2.0-only
"""This module writes random moves as the steps of a conformance test, with what the pages allow the peer to answer.

A move is a kind and four numbers, from which all its details follow. What it means depends on the moves before it, so
that a list of moves stays a legal test if some are taken out: that is how a finding is made small.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from uetproto.conform.packets import PeerFacts

Step = dict[str, Any]

NUMBERS = 4
"""Number of numbers of a move."""
_RANGE = 1 << 16
_SLOTS = 16
"""Number of places of 8 bytes in the memory that moves use."""
_LONG = 4096
"""Offset in the memory at which writes of several packets begin."""
_MOST_STORED = 4
"""Number of guaranteed responses that are not cleared at a time. A peer needs little room for them."""
_MOST_AHEAD = 64
"""Number of PSNs above CACK up to which packets are sent: every window has them (pds.md §8.6)."""
_OK = ["OK", "NULL"]


class FuzzMove(NamedTuple):
    """This record is a move: its kind, and numbers that say the rest. Smaller numbers stand for simpler moves."""

    kind: str
    numbers: tuple[int, ...]


class FuzzEpisode(NamedTuple):
    """This record is a list of moves on one PDC, or one queue pair."""

    mode: str
    """Mode of the PDC, rud or rod; service of the queue pair, rc, uc or ud."""
    start: int | None
    """First PSN; None: a random one."""
    moves: tuple[FuzzMove, ...]


class WrittenEpisode(NamedTuple):
    """This record is an episode as a conformance test has it."""

    steps: list[Step]
    pairs: tuple[Mapping[str, Any], ...] = ()
    """Queue pairs of RoCE."""
    needs: tuple[str, ...] = ()


@dataclass(slots=True)
class FuzzedPacket:
    """This class is a packet that the peer has received, and how it answers a copy of it."""

    step: Step
    answer: Step
    stored: bool
    """Whether its response is a guaranteed one, which the peer stores until it is cleared."""
    again: bool = True
    """Whether the answer to a copy is known."""


@dataclass(slots=True)
class PeerModel:
    """This class knows what the peer has to know, and writes the steps of moves."""

    facts: PeerFacts
    mode: str
    steps: list[Step] = field(default_factory=list)
    received: dict[int, FuzzedPacket] = field(default_factory=dict)
    """Packets that the peer has received, by their distance from the first PSN."""
    cleared: int = -1
    """CLEAR_PSN that the peer knows, by its distance."""
    top: int = -1
    """Highest distance that was sent."""
    memory: dict[int, bytes] = field(default_factory=dict)
    """Bytes of places of the memory, as far as they are known."""
    counters: dict[int, int] = field(default_factory=dict)
    """Numbers at places of the memory that atomics change, as far as they are known."""
    must_clear: bool = False
    ended: bool = False

    @property
    def cack(self) -> int:
        """Return the distance of CACK_PSN."""
        psn = -1
        while (found := self.received.get(psn + 1)) is not None and not (found.stored and psn + 1 > self.cleared):
            psn += 1
        return psn

    @property
    def prefix(self) -> int:
        """Return the distance up to which all packets were received, and answered."""
        psn = -1
        while psn + 1 in self.received:
            psn += 1
        return psn

    @property
    def missing(self) -> list[int]:
        """Return the distances below the highest one that the peer has not received."""
        return [psn for psn in range(self.top) if psn not in self.received]

    # What all moves share

    def sends(self, psn: int, clear: int | None = None, **step: Any) -> Step:
        """Write the step of a packet with a PSN. It carries the CLEAR_PSN `clear`, if it is given."""
        opened = bool(self.received)
        found: Step = {"send": step.pop("send"), "psn": at(psn), **({} if opened else {"syn": 1})}
        if found["send"].split()[0] in ("rud", "rod"):
            found["clear"] = at(self.cleared if clear is None else clear)
        elif self.mode == "rod":
            found["isrod"] = 1
        found |= step
        self.steps.append(found)
        return found

    def acked(self, psn: int, **values: Any) -> Step:
        """Return the ACK of a packet."""
        above = [at(one) for one in sorted(self.received) if one > self.cack]
        known = "peer" if len(self.received) > 1 else "not 0"
        return {
            "expect": "ack", "ack_psn": at(psn), "cack_psn": at(self.cack), "dpdcid": "us", "spdcid": known, "p": 0,
            "sack": above, **values,
        }  # fmt: skip

    def take(self, psn: int, step: Step, *, stored: bool = False, again: bool = True, **answer: Any) -> None:
        """Note that the peer receives a packet, and write the answer that it gives."""
        self.top = max(self.top, psn)
        if "clear" in step:
            self.cleared = max(self.cleared, _distance(step["clear"]))
        self.received[psn] = FuzzedPacket(step, answer, stored, again)
        if stored:
            answer = {"req": "CLEAR", **answer}
        marked = {"m": int(step.get("ecn") == 3)}
        self.steps.append(self.acked(psn, retx=step.get("retx", 0), **marked, **answer))

    def nacked(self, psn: int, code: str | list[str], **values: Any) -> None:
        """Write that a packet is refused."""
        self.steps.append({"expect": "nack", "nack_code": code, "nack_psn": at(psn), "dpdcid": "us", **values})

    def next_psn(self, skip: int = 0) -> int:
        """Return the PSN of a new packet, of a missing one if there are many."""
        ahead = self.top + 1 + (skip if self.mode == "rud" else 0)
        if ahead - self.cack > _MOST_AHEAD and self.missing:
            return self.missing[0]
        return ahead

    def clear_now(self, number: int) -> int:
        """Return the CLEAR_PSN of a request: as before, or all that can be cleared."""
        stored = sum(one.stored and psn > self.cleared for psn, one in self.received.items())
        if self.must_clear or stored >= _MOST_STORED or number % 2 == 0:
            self.must_clear = False
            return max(self.cleared, self.prefix)
        return self.cleared

    @property
    def is_full(self) -> bool:
        """Return whether the peer may have no room for more guaranteed responses, and none can be cleared."""
        stored = [psn for psn, one in self.received.items() if one.stored and psn > self.cleared]
        return len(stored) >= _MOST_STORED and min(stored) > self.prefix

    def request(self, numbers: tuple[int, ...], skip: int, message: str, **fields: Any) -> tuple[int, Step]:
        """Write a request, and return its PSN and its step."""
        psn = self.next_psn(skip)
        more = {"ecn": 3} if numbers[3] % 8 == 7 else {}
        step = self.sends(psn, self.clear_now(numbers[2]), send=f"{self.mode} {message}", ar=1, **more, **fields)
        return psn, step

    def store(self, slot: int, data: bytes) -> None:
        """Note what a write leaves at a place. Whether its first byte is the highest of a number is the peer's choice,
        so that a number is known only of equal bytes."""
        self.memory[slot] = data
        self.counters.pop(slot, None)
        if len({*data}) == 1:
            self.counters[slot] = int.from_bytes(data, "big")

    def count(self, slot: int, number: int) -> None:
        """Note what an atomic leaves at a place: its bytes are not known."""
        self.memory.pop(slot, None)
        self.counters[slot] = number

    def fetched(self, psn: int, step: Step, number: int) -> None:
        """Note that the peer receives a fetching atomic, and write its answer with the old number."""
        self.take(psn, step, stored=True, next_hdr="RESPONSE_DATA", return_code="OK", data=f"{number:016x}")

    def slot(self, number: int) -> tuple[int, dict[str, Any]]:
        """Return a place in the memory, and the field that names it."""
        slot = number % _SLOTS
        return slot, {"buffer_offset": f"addr + {8 * slot}"} if slot else {}


def at(distance: int) -> str:
    """Return the text of a PSN."""
    return "start" if not distance else f"start {'+' if distance > 0 else '-'} {abs(distance)}"


def _distance(text: str) -> int:
    return 0 if text == "start" else int(text.removeprefix("start").replace(" ", ""))


def _octets(numbers: Iterable[int]) -> bytes:
    """Return 8 bytes that follow from numbers."""
    return b"".join(number.to_bytes(2, "big") for number in numbers)


# Moves: each writes its steps, or none if it is not possible now ------------------------------------------------------


def _write(model: PeerModel, n: tuple[int, ...]) -> None:
    """Write 8 bytes; in RUD sometimes above a gap."""
    slot, where = model.slot(n[0])
    data = _octets(n) if slot < _SLOTS // 2 else bytes((n[1] & 0xFF,)) * 8
    psn, step = model.request(n, n[1] % 4 if n[1] % 3 == 2 else 0, "write", data=data.hex(), **where)
    model.store(slot, data)
    model.take(psn, step, return_code="OK", list="EXPECTED")


def _fill(model: PeerModel, n: tuple[int, ...]) -> None:
    """Send a packet that is missing."""
    if not model.missing:
        return
    psn = model.missing[n[0] % len(model.missing)]
    slot, where = model.slot(n[1])
    data = _octets(n)
    step = model.sends(psn, model.clear_now(n[2]), send=f"{model.mode} write", ar=1, data=data.hex(), **where,
                       **({"retx": 1} if n[3] % 2 else {}))  # fmt: skip
    model.store(slot, data)
    model.take(psn, step, return_code="OK")


_SENDS = ("send", "datagram")
_AMO = {"atomic_opcode": "SUM", "atomic_datatype": "UINT64"}
_WRONG: tuple[tuple[str, dict[str, Any], Any], ...] = (
    ("write", {"memory_key": "key + 77"}, "BAD_MKEY"),
    ("write", {"buffer_offset": "addr + length"}, ["BAD_ADDR", "UNSUPPORTED_SIZE"]),
    ("write", {"buffer_offset": "addr + length - 4"}, ["BAD_ADDR", "UNSUPPORTED_SIZE"]),
    ("write", {"pid_on_fep": "pid + 77"}, ["BAD_PID", "UNDELIVERABLE"]),
    ("write", {"resource_index": "index + 77"}, ["BAD_INDEX", "UNDELIVERABLE"]),
    ("write", {"ie": 1}, "INITIATOR_ERROR"),
    ("write", {"eom": 0, "request_length": 8}, "OP_VIOLATION"),
    ("write", {"request_length": 4}, "OP_VIOLATION"),
    ("write", {"opcode": 0x2E}, "UNSUPPORTED_OP"),
    ("write", {"version": 1}, ["UNCOR", "UNSUPPORTED_OP", "OP_VIOLATION"]),
    ("datagram", {}, "OP_VIOLATION"),
    ("send", {"ri_generation": 99}, "BAD_GENERATION"),
    ("atomic", _AMO | {"buffer_offset": "addr + 4"}, "AMO_UNALIGNED"),
    ("atomic", _AMO | {"eom": 0}, "OP_VIOLATION"),
    ("atomic", _AMO | {"atomic_opcode": 0x40}, "AMO_UNSUPPORTED_OP"),
    ("atomic", _AMO | {"atomic_datatype": 0x40}, "AMO_UNSUPPORTED_DT"),
    ("write", {"job_id": "job + 77"}, "BAD_JOB_ID"),
)


def _refused(model: PeerModel, n: tuple[int, ...]) -> None:
    """Send a request with one field wrong: an error, which changes nothing."""
    message, wrong, code = _WRONG[n[0] % (len(_WRONG) if model.facts.relative else len(_WRONG) - 1)]
    _, where = model.slot(n[1])
    if model.is_full or message in model.facts.without or (message in _SENDS and not model.facts.receives):
        return
    where = {} if message in _SENDS else where
    psn, step = model.request(n, 0, message, data=_octets(n).hex(), **(where | wrong))
    model.take(psn, step, stored=True, opcode="RESPONSE", return_code=code)


def _read(model: PeerModel, n: tuple[int, ...]) -> None:
    """Read what was written before."""
    if "read" in model.facts.without or not model.memory or model.missing or model.is_full:
        return
    slots = sorted(model.memory)
    slot, where = model.slot(slots[n[0] % len(slots)])
    psn = model.next_psn()
    model.steps.append({"allow": "ack", "ack_psn": at(psn), "next_hdr": "RESPONSE", "return_code": "OK"})
    psn, step = model.request(n, 0, "read", request_length=8, **where)
    model.top = psn
    model.cleared = max(model.cleared, _distance(step["clear"]))
    data = {"next_hdr": "RESPONSE_DATA", "data": model.memory[slot].hex(), "return_code": "OK", "payload_length": 8,
            "read_request_message_id": psn + 1 & 0xFFFF}  # fmt: skip
    model.received[psn] = FuzzedPacket(step, {}, True, again=False)
    model.steps.append({"any": [
        {"expect": "ack", "ack_psn": at(psn), "cack_psn": at(model.cack), "req": "CLEAR", "dpdcid": "us", **data},
        {"expect": "request", "spdcid": "peer", "dpdcid": "us", **data},
    ]})  # fmt: skip
    model.must_clear = True  # whichever way the data came, CACK passes the read then


_SIGN = 1 << 63
_MASK = (1 << 64) - 1
_AMOS: tuple[tuple[str, str, Callable[[int, int], int]], ...] = (
    ("SUM", "UINT64", lambda old, new: old + new & _MASK), ("BOR", "UINT64", lambda old, new: old | new),
    ("BXOR", "UINT64", lambda old, new: old ^ new), ("BAND", "UINT64", lambda old, new: old & new),
    ("MIN", "UINT64", min), ("MAX", "UINT64", max),
    ("MIN", "INT64", lambda old, new: min(old ^ _SIGN, new ^ _SIGN) ^ _SIGN),
    ("MAX", "INT64", lambda old, new: max(old ^ _SIGN, new ^ _SIGN) ^ _SIGN),
)  # fmt: skip
"""Atomic operations, their datatypes, and the number that is left in the memory."""


def _atomic(model: PeerModel, n: tuple[int, ...]) -> None:
    """Change a number by an atomic operation, and fetch the old one."""
    known, without = sorted(model.counters), model.facts.without
    if not known or model.is_full:
        return
    slot, where = model.slot(known[n[0] % len(known)])
    before, operand = model.counters[slot], int.from_bytes(_octets(n), "big")
    fetches = n[1] % 2 == 1 and "fetch" not in without
    if not fetches and "atomic" in without:
        return
    name, datatype, result = _AMOS[n[2] // 2 % (1 if "amos" in without else len(_AMOS))]
    fields = {"atomic_opcode": name, "atomic_datatype": datatype, "data": f"{operand:016x}", **where}
    psn, step = model.request(n, 0, "fetch" if fetches else "atomic", **fields)
    model.count(slot, result(before, operand))
    if fetches:
        model.fetched(psn, step, before)
    else:
        model.take(psn, step, return_code="OK")


def _swap(model: PeerModel, n: tuple[int, ...]) -> None:
    """Compare a number and swap it if it is equal."""
    known = sorted(model.counters)
    if not known or model.is_full or "cas" in model.facts.without:
        return
    slot, where = model.slot(known[n[0] % len(known)])
    before, new = model.counters[slot], int.from_bytes(_octets(n), "big")
    compare = before if n[1] % 2 else before ^ 1
    fields = {"atomic_opcode": "CSWAP", "atomic_datatype": "UINT64", "request_length": 32}
    psn, step = model.request(n, 0, "cas", **fields, compare_value=compare, swap_value=new, **where)
    model.count(slot, new if compare == before else before)
    model.fetched(psn, step, before)


def _again(model: PeerModel, n: tuple[int, ...]) -> None:
    """Send a retransmission of a packet that was received."""
    psns = [psn for psn, one in model.received.items() if one.again]
    if not psns:
        return
    psn = psns[n[0] % len(psns)]
    found = model.received[psn]
    step = found.step | {"retx": 1}
    step.pop("ecn", None)
    model.steps.append(step)
    stored = found.stored and psn > model.cleared
    if stored:
        answer = {"req": "CLEAR", **found.answer}
    elif found.answer.get("next_hdr") == "NONE":
        answer = {"next_hdr": "NONE"}
    else:
        answer = {"return_code": _OK}
    model.steps.append(model.acked(psn, retx=1, m=0, **answer))


def _noop(model: PeerModel, n: tuple[int, ...]) -> None:
    """Send a NOOP or a NEGOTIATION, which takes a PSN."""
    psn = model.next_psn(n[1] % 3)
    step = model.sends(psn, send="negotiation" if n[0] % 4 == 3 else "noop")
    model.take(psn, step, next_hdr="NONE")


def _probe(model: PeerModel, n: tuple[int, ...]) -> None:
    """Ask what has arrived."""
    if not model.received:
        return
    model.sends(model.top, send="probe", probe_opaque=n[0], ctl_payload=at(max(model.cack, 0)))
    model.steps.append({
        "expect": "ack", "p": 1, "probe_opaque": n[0], "cack_psn": at(model.cack), "next_hdr": "NONE", "spdcid": "peer",
        "dpdcid": "us", "sack": [at(one) for one in sorted(model.received) if one > model.cack],
    })  # fmt: skip


def _ack_req(model: PeerModel, n: tuple[int, ...]) -> None:
    """Ask for the answer to a packet, received or missing."""
    psns = [psn for psn, one in model.received.items() if one.again]
    if n[1] % 3 == 2 and model.received:
        psn = model.missing[0] if model.missing else model.top + 1
        model.sends(psn, send="ack_req")
        model.nacked(psn, "PKT_NOT_RCVD", spdcid="peer")
    elif psns:
        psn = psns[n[0] % len(psns)]
        found = model.received[psn]
        model.sends(psn, send="ack_req")
        answer = {"req": "CLEAR", **found.answer} if found.stored and psn > model.cleared else {}
        if not answer and found.answer.get("next_hdr") != "NONE":
            answer = {"return_code": _OK}
        model.steps.append(model.acked(psn, **answer))


def _clear(model: PeerModel, n: tuple[int, ...]) -> None:
    """Clear guaranteed responses, all or some of them, and ask for CACK."""
    if model.prefix <= model.cleared:
        return
    up_to = model.prefix - (0 if model.must_clear else n[0] % (model.prefix - model.cleared))
    model.sends(0, send="clear_cmd", ctl_payload=at(up_to))
    model.steps[-1]["psn"] = 0
    model.cleared, model.must_clear = up_to, False
    _probe(model, n)


def _lost(model: PeerModel, n: tuple[int, ...], answer: Callable[[int], None], **how: Any) -> None:
    """Send a packet that does not arrive whole, then its retransmission."""
    psn = model.top + 1
    slot, where = model.slot(n[1])
    packet = {"send": f"{model.mode} write", "ar": 1, "data": _octets(n).hex(), **where}
    model.sends(psn, **packet, **how)
    answer(psn)
    step = model.sends(psn, **packet, retx=1)
    model.store(slot, _octets(n))
    model.take(psn, step, return_code="OK")


_BADLY_SEALED: tuple[Step, ...] = (
    {"icv": "wrong"}, {"changed": {"tsc": 5}}, {"changed": {"epoch": "epoch + 1"}}, {"tss": {"sdi": "sdi + 1"}},
    {"tss": {"epoch": "epoch - 17"}}, {"changed": {"an": "1 - an"}}, {"tss": "none"}, {"tss": {"ssi": "none"}},
)  # fmt: skip
"""How a packet is sealed that nobody opens (tss.md §9); the last one where packets have SSIs."""
_WELL_SEALED: tuple[Step, ...] = ({"tss": {"epoch": "epoch + 1"}}, {"tss": {"epoch": "epoch - 16"}},
                                  {"tss": {"an": "1 - an"}})  # fmt: skip
"""How else a packet may be sealed; the last one if there is a second key."""


def _damaged(model: PeerModel, n: tuple[int, ...]) -> None:
    """Send a packet with a wrong CRC32C, or one that does not open, which nobody answers and nobody takes."""
    security = model.facts.security
    if not model.received or model.must_clear:
        return
    if security is not None:
        wrong = _BADLY_SEALED[n[0] % (len(_BADLY_SEALED) - (security.ssi is None))]
        _lost(model, n, lambda psn: model.steps.append({"expect": "nothing"}), **wrong)
    elif model.facts.how.crc:
        _lost(model, n, lambda psn: None, crc="wrong")


def _sealed(model: PeerModel, n: tuple[int, ...]) -> None:
    """Write with another epoch or key, or send an atomic and the same bytes again, which add nothing."""
    security, known = model.facts.security, sorted(model.counters)
    if security is None or model.must_clear:
        return
    if n[0] % 2 and known and "atomic" not in model.facts.without:
        slot, where = model.slot(known[n[1] % len(known)])
        name = f"kept{len(model.steps)}"
        operand = int.from_bytes(_octets(n), "big")
        fields = {**_AMO, "data": f"{operand:016x}", "keep": name, **where}
        psn, step = model.request(n, 0, "atomic", **fields)
        model.count(slot, model.counters[slot] + operand & _MASK)
        model.take(psn, step, again=False, return_code="OK")
        model.steps += [{"send": "copy", "copy": name}, {"any": [
            {"expect": "nothing"}, {"expect": "ack", "ack_psn": at(psn), "cack_psn": at(model.cack)},
        ]}]  # fmt: skip
        return
    slot, where = model.slot(n[1])
    how = _WELL_SEALED[n[2] % (len(_WELL_SEALED) - (not security.has_second_key))]
    psn, step = model.request(n, 0, "write", data=_octets(n).hex(), **where, **how)
    model.store(slot, _octets(n))
    model.take(psn, step, again=False, return_code="OK")


def _low_start(model: PeerModel, n: tuple[int, ...]) -> None:
    """Open another PDC below the lowest PSN, twice: it is refused, each time with the same demand (tss.md §11)."""
    if model.must_clear:
        return
    for number in range(2):
        below = 2097152 - number
        model.steps.append({
            "send": "rud write", "spdcid": "other", "psn": f"floor - {below}", "clear": f"floor - {below + 1}",
            "psn_offset": 0, "syn": 1, "ar": 1, "data": 8,
        })  # fmt: skip
        told = {"nack_payload": "demand"} if number else {"save": {"demand": "nack_payload"}}
        model.steps.append({"expect": "nack", "nack_code": "NEW_START_PSN", "dpdcid": "other", **told})


def _trimmed(model: PeerModel, n: tuple[int, ...]) -> None:
    """Send a packet that a switch has trimmed. Nobody can open a sealed one."""
    if model.received and not model.must_clear and model.facts.security is None:
        where, code = (("switch", "TRIMMED"), ("last hop", "TRIMMED_LASTHOP"))[n[0] % 2]
        codes = [code, "ROD_OOO"] if model.mode == "rod" else code
        _lost(model, n, lambda psn: model.nacked(psn, codes, spdcid="peer"), trimmed=where)


def _far(model: PeerModel, n: tuple[int, ...]) -> None:
    """Send a packet ahead of every window."""
    if model.received and not model.must_clear:
        psn = model.cack + 32_641 + n[0] % 64
        model.sends(psn, send=f"{model.mode} write", ar=1, data=8, message_id=9)
        model.nacked(psn, "PSN_OOR_WINDOW" if model.mode == "rud" else ["PSN_OOR_WINDOW", "ROD_OOO"], spdcid="peer")


def _before(model: PeerModel, n: tuple[int, ...]) -> None:
    """Send a packet before the first one, or a trimmed copy of one that was received: neither is taken."""
    copies = [psn for psn, one in model.received.items() if one.again and one.step["send"].endswith(" write")]
    if n[0] % 8 or not model.received or model.must_clear:  # silence takes its time
        return
    if n[1] % 2 and copies and model.facts.security is None:
        psn = copies[n[2] % len(copies)]
        copy = {name: value for name, value in model.received[psn].step.items() if name not in ("syn", "start")}
        model.steps += [copy | {"trimmed": "switch"}, {"any": [
            {"expect": "nothing"}, {"expect": "ack", "ack_psn": at(psn), "cack_psn": at(model.cack)},
        ]}]  # fmt: skip
    else:
        model.sends(-5, -6, send=f"{model.mode} write", ar=1, retx=1, message_id=9, data=8)
        model.steps.append({"any": [
            {"expect": "nothing"}, {"expect": "nack", "nack_code": "PSN_OOR_WINDOW", "nack_psn": at(-5)},
        ]})  # fmt: skip


def _stranger(model: PeerModel, n: tuple[int, ...]) -> None:
    """Send a packet to a PDC that does not exist, or as another PDC."""
    if not model.received:
        return
    psn = model.top + 1
    psns = [psn for psn, one in model.received.items() if one.again and one.step["send"].endswith("write")]
    if n[0] % 2 and psns:  # a packet that was sent before, as a PSN has one content
        psn = psns[n[1] % len(psns)]
        copy = {name: value for name, value in model.received[psn].step.items() if name not in ("syn", "start")}
        model.steps.append(copy | {"spdcid": "other", "retx": 1})
        model.steps.append({"expect": "nack", "nack_code": "PDC_HDR_MISMATCH", "nack_psn": at(psn), "dpdcid": "other"})
    else:
        model.sends(psn, send=f"{model.mode} write", spdcid="other", dpdcid="other", data=8)
        model.steps.append({"expect": "nack", "nack_code": "INV_DPDCID", "nack_psn": at(psn), "dpdcid": "other",
                            "spdcid": 0})  # fmt: skip


def _odd(model: PeerModel, n: tuple[int, ...]) -> None:
    """Send what nobody answers: an ACK or a NACK for no PDC, a reserved type, a UUD datagram."""
    if model.received and not model.must_clear:
        model.steps.append((
            {"send": "ack", "cack_psn": "start", "spdcid": "other", "dpdcid": "other"},
            {"send": "nack", "nack_code": "INV_DPDCID", "nack_psn": "start", "spdcid": "other", "dpdcid": "other"},
            {"send": f"{model.mode} write", "psn": at(model.top + 1), "type": 31, "data": 8},
            {"send": "uud datagram", "data": 16, "resource_index": "index + 77"},
        )[n[0] % 4])  # fmt: skip


def _rudi(model: PeerModel, n: tuple[int, ...]) -> None:
    """Write by RUDI with a key that does not exist, or to memory that is not for RUDI."""
    if "rudi" not in model.facts.without:
        number, wrong = 0xF0000000 + n[0], n[1] % 2 == 0 or model.facts.idempotent
        step = {"send": "rudi write", "pkt_id": number, "data": 8} | ({"memory_key": "key + 77"} if wrong else {})
        codes = ["BAD_MKEY", "OP_VIOLATION"] if wrong else "OP_VIOLATION"
        model.steps.append(step)
        model.steps.append({"expect": "rudi_response", "pkt_id": number, "opcode": "RESPONSE", "return_code": codes})


def _long(model: PeerModel, n: tuple[int, ...]) -> None:
    """Write a message of two packets; in RUD in both orders."""
    if model.missing or model.must_clear:
        return
    first = model.next_psn()
    clear = model.clear_now(n[2])
    message = {"message_id": 2 + first & 0xFFFF, "request_length": "mtu + 8", "buffer_offset": f"addr + {_LONG}"}
    begin = {"eom": 0, "data": "mtu"} | message
    end = {"som": 0, "payload_length": 8, "message_offset": "mtu", "data": _octets(n).hex()} | message
    parts = [(first, begin), (first + 1, end)]
    if n[1] % 4 == 3 and not model.is_full:  # its second packet has another key, which is an error
        step = model.sends(first, clear, send=f"{model.mode} write", ar=1, **begin)
        model.take(first, step, again=False, return_code="OK")
        step = model.sends(first + 1, clear, send=f"{model.mode} write", ar=1, memory_key="key + 77", **end)
        model.take(first + 1, step, stored=True, opcode="RESPONSE", return_code="PERM_VIOLATION")
        return
    for psn, part in reversed(parts) if model.mode == "rud" and n[0] % 2 and model.received else parts:
        step = model.sends(psn, clear, send=f"{model.mode} write", ar=1, **part)
        model.take(psn, step, again=False, return_code="OK")


def _gap(model: PeerModel, n: tuple[int, ...]) -> None:
    """Leave a gap in ROD: the packet behind it is refused, or kept until the gap closes."""
    if model.mode != "rod" or not model.received or model.must_clear:
        return
    first = model.top + 1
    late = {"send": "rod write", "psn": at(first + 1), "clear": at(model.cleared), "ar": 1, "data": _octets(n).hex()}
    model.steps += [late, {"any": [
        {"expect": "nack", "nack_code": "ROD_OOO", "nack_psn": at(first + 1), "nack_payload": at(first),
         "dpdcid": "us"},
        {"expect": "nothing"},
        {"expect": "ack", "cack_psn": at(model.cack)},
    ]}, {"allow": "ack", "ack_psn": at(first + 1), "return_code": "OK"}]  # fmt: skip
    step = model.sends(first, model.cleared, send="rod write", ar=1, retx=1, data=n[1] % 8 + 1)
    model.received[first] = FuzzedPacket(step, {}, False, again=False)
    held = at(model.cack)
    model.received[first + 1] = FuzzedPacket(late, {"return_code": "OK"}, False)
    model.top = first + 1
    model.steps.append({"expect": "ack", "ack_psn": at(first), "cack_psn": [held, at(model.cack)], "retx": 1})
    model.steps.append(late | {"retx": 1})
    model.steps.append(model.acked(first + 1, retx=1, return_code=_OK))
    model.store(0, _octets(n))


def _close(model: PeerModel, n: tuple[int, ...]) -> None:
    """Close the PDC; then it is gone."""
    if not model.received or model.missing or n[0] % 4:
        return
    psn = model.top + 1
    model.sends(psn, send="close_cmd")
    model.steps.append({"expect": "ack", "ack_psn": at(psn), "cack_psn": at(psn), "next_hdr": "NONE", "spdcid": "peer"})
    model.sends(psn + 1, psn, send=f"{model.mode} write", ar=1, data=8)
    model.nacked(psn + 1, ["INV_DPDCID", "CLOSING"])
    model.ended = True


def _fatal(model: PeerModel, n: tuple[int, ...]) -> None:
    """Send a packet of the other mode, or a control packet that is none: fatal, so that nothing follows."""
    if not model.received or n[0] % 4:
        return
    psn, rod = model.top + 1, model.mode == "rod"
    wrong_start = {"syn": 1, "psn_offset": psn + 5 & 0xFFF, "send": "noop"}
    mismatch, unexpected = "PDC_MODE_MISMATCH", "UNEXP_EVENT"
    step, code = (
        ({"send": f"{'rud' if rod else 'rod'} write", "ar": 1, "data": 8}, mismatch),
        ({"send": "noop", "isrod": int(not rod)}, mismatch),
        ({"send": "noop", "ctl_type": 12, "ar": 1}, unexpected),
        ({"send": "close_req"}, unexpected),
        (wrong_start, "INVALID_SYN"),
    )[n[1] % 5]
    model.sends(psn, **step)
    model.nacked(psn, code)
    model.ended = True


MOVES: Mapping[str, tuple[int, Callable[[PeerModel, tuple[int, ...]], None]]] = {
    "write": (8, _write), "fill": (4, _fill), "refused": (5, _refused), "read": (4, _read), "atomic": (7, _atomic),
    "swap": (2, _swap), "again": (8, _again), "noop": (3, _noop), "probe": (2, _probe), "ack_req": (3, _ack_req),
    "clear": (3, _clear), "damaged": (1, _damaged), "trimmed": (2, _trimmed), "far": (1, _far), "before": (1, _before),
    "stranger": (2, _stranger), "odd": (1, _odd), "rudi": (1, _rudi), "long": (2, _long), "gap": (2, _gap),
    "close": (1, _close), "fatal": (2, _fatal),
}  # fmt: skip
"""Moves: how often each is drawn, and what writes its steps."""
SEALED_MOVES = {**MOVES, "damaged": (4, _damaged), "sealed": (4, _sealed), "low_start": (2, _low_start)}
"""Moves of a peer with keys."""
_WRAPS = (0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFF8, 0)


def drawn(rng: random.Random, length: int, facts: PeerFacts | None = None) -> FuzzEpisode:
    """Return a random episode with at most so many moves."""
    mode = "rod" if rng.randrange(3) == 0 else "rud"
    start = rng.choice(_WRAPS) if rng.randrange(4) == 0 else None
    moves: Mapping[str, tuple[int, Any]] = MOVES
    if facts is not None and facts.security is not None:  # with keys the peer chooses the first PSN (tss.md §11)
        start, moves = None, SEALED_MOVES
    kinds = rng.choices([*moves], [weight for weight, _ in moves.values()], k=rng.randint(2, length))
    return FuzzEpisode(mode, start, tuple(FuzzMove(kind, numbers_of(rng)) for kind in kinds))


def numbers_of(rng: random.Random) -> tuple[int, ...]:
    """Return the random numbers of a move."""
    return tuple(rng.randrange(_RANGE) for _ in range(NUMBERS))


def written(episode: FuzzEpisode, facts: PeerFacts) -> WrittenEpisode:
    """Return an episode as a conformance test has it; it has no steps if it sends nothing."""
    model = PeerModel(facts, episode.mode)
    for move in episode.moves:
        if model.ended:
            break
        SEALED_MOVES[move.kind][1](model, move.numbers)
    sends = [step for step in model.steps if "send" in step]
    if sends and episode.start is not None:
        sends[0]["start"] = episode.start
    return WrittenEpisode(model.steps, needs=() if facts.security is None else ("keys",))


def simpler(episode: FuzzEpisode) -> list[FuzzEpisode]:
    """Return the episode with simpler settings."""
    return [episode._replace(start=None), episode._replace(mode="rud")]


PLAIN = FuzzMove("write", (0,) * NUMBERS)
"""Move that stands for any other one."""
