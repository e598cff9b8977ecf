# SPDX-License-Identifier: GPL-2.0-only
"""This module makes the queue pairs and the memory that `uetproto conform` asks of `uetproto serve` for a test of
RoCE, and asks for them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uetproto import LocalError
from uetproto.api import verbs
from uetproto.conform.player import ConformanceVerdict, Failed
from uetproto.conform.roce.hand import HandPairs
from uetproto.conform.roce.pairs import (
    KINDS,
    MEMORY,
    MOST_AT_ONCE,
    MOST_REGIONS,
    MOST_ROOM,
    NEEDS,
    POSTS,
    SETTINGS,
    CompletedWork,
    OpenPair,
    PairWish,
    PeerMemory,
    PeerSetup,
    TakenMessage,
    bytes_told,
    message_of,
)
from uetproto.engine.roce.qp import bring_up_steps
from uetproto.engine.roce.segments import ATOMIC_SIZE
from uetproto.errors import RemoteError, UetError
from uetproto.live.rendezvous import Json, RendezvousClient, number

_PSN = 1 << 24
_SHOWN = 1 << 14
"""Largest number of bytes of a message that are told."""
_MESSAGES = 64
_HAND_RECEIVES = 32
"""Number of receives of a queue pair made by hand."""
_HAND_COMPLETIONS = 1 << 14
_READS = (verbs.WcOpcode.RDMA_READ, verbs.WcOpcode.COMP_SWAP, verbs.WcOpcode.FETCH_ADD)
_READ, _WRITE = verbs.Access.REMOTE_READ, verbs.Access.REMOTE_WRITE | verbs.Access.LOCAL_WRITE
_MEMORY: dict[str, tuple[verbs.Access, bool]] = {
    "": (verbs.ALL, False), "read_only": (_READ | verbs.Access.LOCAL_WRITE, False), "write_only": (_WRITE, False),
    "other_domain": (verbs.ALL, True),
}  # fmt: skip
"""Rights of each piece of memory, and whether it is in another protection domain than the queue pairs."""


@dataclass(slots=True)
class _Served:
    """A queue pair of a test."""

    qp: verbs.QP
    regions: list[verbs.MR]
    taken: list[Json] = field(default_factory=list)
    posted: dict[int, verbs.MR] = field(default_factory=dict)
    """Memory of work of its own, by its number."""
    done: list[Json] = field(default_factory=list)
    again: bool = False
    """Whether receives that were taken are posted again."""


class TestedPairs:
    """This class has the queue pairs and the memory of the test that a session plays; the next test gets others."""

    __test__ = False  # for pytest, which takes it for a class of tests

    def __init__(self, pd: verbs.PD, other: verbs.PD, peer: int, path_mtu: int) -> None:
        """`other` is a protection domain that the queue pairs do not reach."""
        self._pd, self._other = pd, other
        self._cq: verbs.CQ | None = None
        self._peer, self._path_mtu = peer, path_mtu
        self.served: dict[int, _Served] = {}
        self._memory: list[verbs.MR] = []
        self._reports: Path | None = None

    def open(self, told: Json) -> Json:
        """Free what the test before had, and make queue pairs and memory. Raises `LocalError` for a wish that is not
        legal."""
        self.close()
        wishes = told.get("pairs")
        if not isinstance(wishes, list) or not 1 <= len(wishes) <= MOST_AT_ONCE or not all(map(_is_wish, wishes)):
            raise LocalError(
                "pairs", f"{str(wishes)[:80]} is not legal", f"1 … {MOST_AT_ONCE} objects with kind",
                id="rendezvous-message"
            )  # fmt: skip
        room = sum(_set(wish, "receives", 4) * _set(wish, "receive_size", 2 * self._path_mtu) for wish in wishes)
        if room > MOST_ROOM:
            raise LocalError(
                "receive_size", f"the receives of all queue pairs have {room:,} bytes", f"{MOST_ROOM:,}",
                id="rendezvous-message"
            )  # fmt: skip
        most = sum(_set(wish, "receives", 4) + _MESSAGES for wish in wishes)
        self._cq = self._pd.device.create_cq(most)  # of its own: what a client does fills no other
        try:
            pairs = [self._pair(wish) for wish in wishes]
            memory = {name: self._region(rights, other) for name, (rights, other) in _MEMORY.items()}
            regions = [self._region(verbs.ALL, False, size) for size in _sizes_of(told)]
        except BaseException:
            self.close()
            raise
        made = {name: _told(mr) for name, mr in memory.items()}
        return {"pairs": pairs, "memory": made, "regions": [_told(mr) for mr in regions]}

    def open_by_hand(self, hand: HandPairs, names: Mapping[int, str]) -> dict[str, int]:
        """Make the queue pairs and the memory of a PEER.toml, beside the memory without a name. Returns the numbers of
        the queue pairs by their `names`. Raises `LocalError` for a key or a number that is not to be had."""
        self.close()
        self._cq = self._pd.device.create_cq(_HAND_COMPLETIONS)
        self._reports = hand.reports
        found: dict[str, int] = {}
        try:
            for name, place in hand.memory.items():
                if name:
                    rights, other = _MEMORY[name]
                    pd = self._other if other else self._pd
                    mr = pd.reg_mr(bytearray(place.length), rights, addr=place.address, rkey=place.key)
                    self._memory.append(mr)
            for pair in hand.pairs:
                wish = {
                    "receives": _HAND_RECEIVES, "again": int("receives" not in pair.settings), **pair.settings,
                    "kind": pair.kind, "qp_num": pair.number, "psn": pair.psn, "first": pair.first,
                }  # fmt: skip
                made = self._pair(wish, pair.theirs or None, pair.q_key or verbs.QKEY)
                found[names[pair.number]] = made["qp_num"]
        except BaseException:
            self.close()
            raise
        return found

    def _region(self, rights: verbs.Access, other: bool, size: int = MEMORY) -> verbs.MR:
        mr = (self._other if other else self._pd).reg_mr(bytearray(size), rights)
        self._memory.append(mr)
        return mr

    def _pair(self, wish: Json, own: int | None = None, q_key: int = verbs.QKEY) -> Json:
        """Make the queue pair of a wish, with a number of its `own`, if one was agreed on."""
        kind = verbs.QpType[str(wish["kind"]).upper()]
        set_ = {name: number(wish, name, *SETTINGS[name]) for name in SETTINGS if name in wish}
        theirs, psn = number(wish, "qp_num", 2, _PSN - 1), number(wish, "psn", 0, _PSN - 1)
        ours = set_.get("first", self._pd.device.psns.getrandbits(24))
        assert self._cq is not None
        qp = self._pd.create_qp(kind, self._cq, qp_num=own)
        self.served[qp.qp_num] = served = _Served(qp, [])
        wanted = {
            "pkey_index": 0, "port": 1, "av": verbs.AddressVector(self._peer), "path_mtu": self._path_mtu,
            "access_flags": verbs.Access(set_.get("access", int(verbs.ALL))), "qkey": q_key,
            "dest_qpn": theirs, "sq_psn": ours, "rq_psn": psn, **set_,
        }  # fmt: skip
        for state, values in bring_up_steps(kind, self._pd.device.config, wanted):
            qp.modify(state, **values)
        served.again = bool(set_.get("again"))
        size = set_.get("receive_size", 2 * self._path_mtu)
        for at in range(set_.get("receives", 4)):
            mr = self._pd.reg_mr(bytearray(size))
            served.regions.append(mr)
            qp.post_recv(mr, wr_id=at)
        return {"qp_num": qp.qp_num, "q_key": q_key, "first": ours}

    def collect(self) -> None:
        """Take the completions that are there."""
        for entry in self._cq.poll(len(self._cq)) if self._cq is not None and len(self._cq) else ():
            self._take(self.served[entry.qp_num], entry)

    def _take(self, served: _Served, entry: verbs.WorkCompletion) -> None:
        if entry.receive and entry.status is verbs.Status.SUCCESS:
            mr = served.regions[entry.wr_id]
            if self._reports is not None:
                with self._reports.open("a", encoding="utf-8") as file:
                    file.write(f"{json.dumps({'qp_num': entry.qp_num, **_taken_by(mr, entry)})}\n")
            elif not served.again and len(served.taken) < _MESSAGES:
                served.taken.append(_taken_by(mr, entry))
            if served.again:
                served.qp.post_recv(mr, wr_id=entry.wr_id)
        elif not entry.receive and entry.wr_id in served.posted:
            mr = served.posted[entry.wr_id]
            data = mr.read(0, mr.length) if entry.opcode in _READS and entry.ok else b""
            served.done.append({"status": entry.status.name, "data": data.hex()})

    def post(self, told: Json) -> Json:
        """Post work on a queue pair. Raises `LocalError` for work that is not legal."""
        served = self._of(told)
        opcode = told.get("opcode")
        if opcode not in POSTS or len(served.posted) >= _MESSAGES:
            raise LocalError(
                "opcode", f"{str(opcode)[:40]!r} is not legal", f"{', '.join(POSTS)}, {_MESSAGES} times",
                id="rendezvous-message"
            )  # fmt: skip
        atomic = opcode.startswith("atomic")
        length = ATOMIC_SIZE if atomic else number(told, "length", 0, _SHOWN, 0)
        try:
            data = bytes.fromhex(told["data"]) if "data" in told else bytes(length)
        except (TypeError, ValueError):
            raise LocalError(
                "data", f"{str(told['data'])[:40]!r} is not legal", "hexadecimal text", id="rendezvous-message"
            ) from None
        names = [] if opcode.startswith("send") else ["remote_addr", "rkey"]
        names += ["compare_add", "swap"] if atomic else []
        fields = {name: number(told, name, 0, 2**64 - 1, 0) for name in names}
        if opcode.endswith("with_imm"):
            fields["imm_data"] = number(told, "imm_data", 0, 2**32 - 1, 0)
        mr = self._pd.reg_mr(bytearray(data[:_SHOWN]))
        wr_id = _MESSAGES + len(served.posted)
        served.posted[wr_id] = mr
        served.qp.post_send(verbs.Opcode[opcode.upper()], mr, wr_id=wr_id, **fields)
        return {"posted": len(served.posted)}

    def completed(self, told: Json) -> Json:
        """Return work that has completed on a queue pair, with how much there is after it."""
        served = self._of(told)
        return {"completion": served.done.pop(0) if served.done else None, "left": len(served.done)}

    def _of(self, told: Json) -> _Served:
        served = self.served.get(number(told, "qp_num", 2, _PSN - 1))
        if served is None:
            raise LocalError(
                "qp_num", f"{told['qp_num']} is no queue pair of this test", "one of the last pairs",
                id="rendezvous-message"
            )  # fmt: skip
        return served

    def messages(self, told: Json) -> Json:
        """Return a message that receives of a queue pair have taken, with how many there are after it."""
        served = self._of(told)
        found = served.taken.pop(0) if served.taken else None
        return {"message": found, "left": len(served.taken)}

    def close(self) -> None:
        """Free queue pairs and memory."""
        for served in self.served.values():
            served.qp.destroy()
            for mr in (*served.regions, *served.posted.values()):
                mr.dereg()
        for mr in self._memory:
            mr.dereg()
        self.served.clear()
        self._memory.clear()
        if self._cq is not None:
            self._cq.destroy()
            self._cq = None


def _told(mr: verbs.MR) -> Json:
    return {"key": mr.rkey, "address": mr.addr, "length": mr.length}


def _sizes_of(told: Json) -> list[int]:
    """Return the sizes of further memory that a client wishes."""
    wished = told.get("regions", [])
    if not isinstance(wished, list) or len(wished) > MOST_REGIONS:
        raise LocalError(
            "regions", f"{str(wished)[:80]} is not legal", f"at most {MOST_REGIONS} sizes", id="rendezvous-message"
        )
    sizes = [number({"regions": size}, "regions", 1, MOST_ROOM) for size in wished]
    if sum(sizes) > MOST_ROOM:
        raise LocalError(
            "regions", f"{sum(sizes):,} bytes are more than this peer has", f"{MOST_ROOM:,}", id="rendezvous-message"
        )
    return sizes


def _set(wish: Json, name: str, usual: int) -> int:
    """Return a setting that a queue pair shall have."""
    return number(wish, name, *SETTINGS[name], usual)


def _taken_by(mr: verbs.MR, entry: verbs.WorkCompletion) -> Json:
    """Return what is told of a message that a receive has taken."""
    return {
        "data": mr.read(0, min(mr.length, _SHOWN))[: entry.byte_len].hex(), "length": entry.byte_len,
        "immdt": entry.imm_data, "se": int(entry.solicited), "srcqp": entry.src_qp,
    }  # fmt: skip


def _is_wish(wish: Any) -> bool:
    return isinstance(wish, dict) and wish.get("kind") in KINDS


class AskedPairs:
    """This class has the queue pairs that a peer makes at its rendezvous. It is a `PairSource`."""

    def __init__(self, rendezvous: RendezvousClient, lacks: Sequence[str] = ()) -> None:
        self.lacks = lacks
        self.gone = False
        self._rendezvous = rendezvous

    def open(self, wishes: Sequence[PairWish], regions: Sequence[int] = ()) -> PeerSetup | str:
        asked = [
            {"kind": wish.kind, "qp_num": wish.number, "psn": wish.psn, **wish.settings} for wish in wishes
        ]  # fmt: skip
        try:
            more = {"regions": [*regions]} if regions else {}
            return opened_of(wishes, self._rendezvous.ask("pairs", pairs=asked, **more), len(regions))
        except UetError as error:
            self.gone = isinstance(error, RemoteError)
            return f"the peer makes no queue pairs: {error}"

    def messages(self, pair: OpenPair) -> list[TakenMessage]:
        found: list[TakenMessage] = []
        while len(found) < _MESSAGES:
            try:
                answer = self._rendezvous.ask("messages", qp_num=pair.theirs)
                if not isinstance(answer.get("message"), dict):
                    break
                found.append(message_of(answer["message"]))
            except UetError:
                self.gone = True  # or it tells nothing that makes sense
                break
            if not answer.get("left"):
                break
        return found

    def post(self, pair: OpenPair, work: Mapping[str, Any]) -> None:
        told = {name: value.hex() if isinstance(value, bytes) else value for name, value in work.items()}
        try:
            self._rendezvous.ask("post", qp_num=pair.theirs, **told)
        except UetError as error:
            self.gone = isinstance(error, RemoteError)
            raise Failed(f"the peer does not post: {error}", verdict=ConformanceVerdict.INCONCLUSIVE) from error

    def completed(self, pair: OpenPair) -> list[CompletedWork]:
        found: list[CompletedWork] = []
        while len(found) < _MESSAGES:
            try:
                answer = self._rendezvous.ask("completed", qp_num=pair.theirs)
                if not isinstance(answer.get("completion"), dict):
                    break
                found.append(work_of(answer["completion"]))
            except UetError:
                self.gone = True  # or it tells nothing that makes sense
                break
        return found

    def close(self, opened: PeerSetup) -> None:
        """Do nothing: what the next test asks for replaces this, and the end of the session frees all."""


def opened_of(wishes: Sequence[PairWish], answer: Json, regions: int = 0) -> PeerSetup:
    """Return what a peer says that it made. Raises `LocalError` for what is no answer."""
    pairs, memory = answer.get("pairs"), answer.get("memory")
    if not isinstance(pairs, list) or len(pairs) != len(wishes) or not isinstance(memory, dict):
        raise LocalError(
            "pairs", f"the peer answers {str(answer)[:80]}", f"{len(wishes)} queue pairs and memory", id="peer-refused"
        )
    found = [
        OpenPair(
            wish.kind, wish.number, number(pair, "qp_num", 0, _PSN - 1), wish.psn,
            q_key=number(pair, "q_key", 0, 2**32 - 1, 0), first=number(pair, "first", 0, _PSN - 1, 0),
        )
        for wish, pair in zip(wishes, pairs, strict=True) if isinstance(pair, dict)
    ]  # fmt: skip
    places = {
        name: _memory_of(place)
        for name, place in memory.items()
        if (not name or name in NEEDS) and isinstance(place, dict)
    }
    told = answer.get("regions", [])
    more = [_memory_of(place) for place in told if isinstance(place, dict)] if isinstance(told, list) else []
    if len(found) != len(wishes) or "" not in places or len(more) != regions:
        raise LocalError(
            "pairs", f"the peer answers {str(answer)[:80]}", f"{len(wishes)} queue pairs and memory", id="peer-refused"
        )
    return PeerSetup(found, places, more)


def _memory_of(place: Json) -> PeerMemory:
    """Return memory that a peer tells of. Raises `LocalError` for what is none."""
    return PeerMemory(
        number(place, "key", 0, 2**32 - 1), number(place, "address", 0, 2**64 - 1),
        number(place, "length", 0, 2**64 - 1),
    )  # fmt: skip


def work_of(told: Json) -> CompletedWork:
    """Return completed work that a peer tells of. Raises `LocalError` for what is none."""
    status = str(told.get("status"))
    if status not in verbs.Status.__members__:
        raise LocalError(
            "status", f"{status[:40]!r} is not legal", ", ".join(verbs.Status.__members__), id="rendezvous-message"
        )
    return CompletedWork(status, bytes_told(told))
