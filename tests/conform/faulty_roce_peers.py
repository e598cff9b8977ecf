# SPDX-License-Identifier: GPL-2.0-only
"""Deliberate faults of a peer of RoCE: our adapter, and what happens to its packets on their way in and out, or a copy
of one of its checks that is wrong.

`ROCE_FAULTS` lists each one with the tests that have to fail. The others have to pass, as none of them depends on the
fault.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from tests.support.conform_roce import RocePeer
from uetproto.conform.roce.play import OUR_ADDRESS
from uetproto.engine.roce.contract import Access
from uetproto.engine.roce.responder import RcResponder
from uetproto.engine.roce.segments import FIRST, MESSAGE_STATES, MIDDLE, STEPS, MessageStep
from uetproto.engine.roce.uc import UcResponder
from uetproto.engine.roce.ud import UdResponder
from uetproto.wire.headers.roce import CNP_OPCODE, Nak, Operation, Transport, opcode_of
from uetproto.wire.packet import Layer, Packet, Trailer
from uetproto.wire.stack import decode, encode

Change = Callable[["FaultyRocePeer", Packet, dict[str, Any]], Iterator[Packet]]
"""What becomes of a packet: it gets the packet and the values of its BTH, and yields packets."""
PSNS = 1 << 24


class FaultyRocePeer(RocePeer):
    """Our adapter behind two changes, of packets that arrive and of those that leave."""

    arrives: Change | None = None
    leaves: Change | None = None

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self.more: list[Packet] = []
        """Packets that leave with the next ones of the adapter."""
        self.seen: set[Any] = set()
        """What a fault keeps in mind."""

    def deliver(self, frame: bytes) -> None:
        for changed in self._changed(self.arrives, frame):
            super().deliver(changed)

    def poll(self) -> list[bytes]:
        frames = [changed for frame in super().poll() for changed in self._changed(self.leaves, frame)]
        more, self.more = self.more, []
        return frames + [encode(packet, fill=True) for packet in more]

    def _changed(self, change: Change | None, frame: bytes) -> Iterator[bytes]:
        packet = decode(frame)
        bth = next((layer for layer in packet.layers if layer.form == "bth"), None)
        if change is None or bth is None:
            yield frame
            return
        for one in change(self, packet, dict(bth.values)):
            yield frame if one is packet else encode(one, fill=True)


def altered(packet: Packet, **values: Any) -> Packet:
    """Return a packet with other values of its headers from the BTH on, and a right ICRC."""
    forms = [layer.form for layer in packet.layers]
    start = forms.index("bth")
    layers = [
        layer._replace(values={**layer.values, **{n: v for n, v in values.items() if n in layer.values}})
        if at >= start else layer for at, layer in enumerate(packet.layers)
    ]  # fmt: skip
    return replace(packet, layers=layers, trailer=Trailer("icrc", 0))


def with_field(name: str, change_of: Callable[[int], int], *operations: Operation) -> Change:
    """Return the fault of another value of a field, in packets of RC with these operations, or all that have it."""

    def change(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
        layer = next((layer for layer in packet.layers[3:] if name in layer.values), None)
        if layer is not None and (not operations or bth["opcode"] in operations):
            value = change_of(layer.values[name])
            packet = packet if value == layer.values[name] else altered(packet, **{name: value})
        yield packet

    return change


def takes_wrong_icrc(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    yield altered(packet) if packet.trailer is not None and packet.trailer.ok is False else packet


def lost(*operations: Operation) -> Change:
    """Return the fault of packets of these operations that are lost when they come again."""

    def change(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
        owner = peer.node.hca.qps.get(bth["destqp"], bth["destqp"])  # not its number, which the next test has, too
        key = owner, bth["psn"], bth["opcode"]
        if key not in peer.seen or bth["opcode"] not in operations:
            yield packet
        peer.seen.add(key)

    return change


def acknowledges_gaps(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    if packet.layers[-1].values.get("syndrome") == Nak.PSN_SEQUENCE_ERROR:
        packet = altered(packet, syndrome=0x1F)
    yield packet


def is_nak(packet: Packet, *naks: int) -> bool:
    return packet.layers[-1].values.get("syndrome") in naks


def without_nak(*naks: int) -> Change:
    def change(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
        if not is_nak(packet, *naks):
            yield packet

    return change


def wrong_nak(nak: int, other: int) -> Change:
    def change(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
        yield altered(packet, syndrome=other) if is_nak(packet, nak) else packet

    return change


def nak_of_request(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    yield altered(packet, psn=(bth["psn"] + 1) % PSNS) if is_nak(packet, Nak.PSN_SEQUENCE_ERROR) else packet


def wraps_late(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    wrapped = bth["opcode"] == Operation.ACKNOWLEDGE and bth["psn"] < 1 << 8
    yield altered(packet, psn=bth["psn"] + 1) if wrapped else packet


def answers_strangers(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    if bth["destqp"] not in peer.node.hca.qps:
        told = {"opcode": Operation.ACKNOWLEDGE, "psn": bth["psn"]}
        peer.more.append(_to_us(peer, packet, told, Layer("aeth", {"syndrome": Nak.INVALID_REQUEST})))
    yield packet


def fits_partition(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    wrong = bth["p_key"] & 0x7FFF != 0x7FFF
    yield altered(packet, p_key=0xFFFF) if wrong else packet


def once_read(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    """All packets of the answer to a READ have the PSN of the first."""
    operation = bth["opcode"]
    if operation == Operation.RDMA_READ_RESPONSE_FIRST:
        peer.seen = {bth["psn"]}
    later = operation in (Operation.RDMA_READ_RESPONSE_MIDDLE, Operation.RDMA_READ_RESPONSE_LAST)
    yield altered(packet, psn=next(iter(peer.seen))) if later else packet


def with_ecn(ecn: int) -> Change:
    def change(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
        if packet.trailer is None or not packet.trailer.ok or (len(packet.payload) + bth["padcnt"]) % 4:
            yield packet
            return
        layers = [
            layer._replace(values={**layer.values, "ecn": ecn}) if layer.form == "ipv4" else layer
            for layer in packet.layers
        ]  # fmt: skip
        yield replace(packet, layers=layers)

    return change


def drops(condition: Callable[[Packet, dict[str, Any]], bool]) -> Change:
    """Return the fault of dropping some packets."""

    def change(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
        if not condition(packet, bth):
            yield packet

    return change


def of_our_transport(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    """Packets of UC are taken for those of RC."""
    wrong = bth["opcode"] >> 5 == Transport.UC and peer.node.hca.qps.get(bth["destqp"])
    yield altered(packet, opcode=bth["opcode"] & 0x1F) if wrong and wrong.kind == Transport.RC else packet


def acknowledges_cnp(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    if bth["opcode"] == CNP_OPCODE:
        peer.more.append(_to_us(peer, packet, {"opcode": Operation.ACKNOWLEDGE, "psn": 0}, Layer("aeth", {})))
    yield packet


def acknowledges_unreliable(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    if bth["opcode"] >> 5 in (Transport.UC, Transport.UD) and bth["a"]:
        told = {"opcode": Operation.ACKNOWLEDGE, "psn": bth["psn"]}
        peer.more.append(_to_us(peer, packet, told, Layer("aeth", {"syndrome": 0x1F})))
    yield packet


def _to_us(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any], behind: Layer) -> Packet:
    """Return a packet of the peer to the sender of `packet`, for the queue pair of the first one of the test."""
    qp = next(iter(peer.node.hca.qps.values()))
    seen = next((layer.values["srcqp"] for layer in packet.layers if layer.form == "deth"), qp.attributes.dest_qpn)
    lower = [
        Layer("ipv4", {"src": packet["ipv4"]["dst"], "dst": packet["ipv4"]["src"]}),
        Layer("udp", {"sport": 50_000, "dport": 4791}),
    ]
    head = Layer("bth", {"p_key": 0xFFFF, "destqp": seen, **bth})
    return Packet([Layer("ethernet", {}), *lower, head, behind], b"", Trailer("icrc", 0))


def wrong_key_of_atomic(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    """Atomics reach the memory of the test whatever key they have."""
    atomic = bth["opcode"] in (Operation.FETCH_ADD, Operation.COMPARE_SWAP)
    keys, eth = peer.node.hca.regions.by_rkey, packet.layers[-1].values
    if atomic and eth["r_key"] not in keys:
        good = (key for key, region in keys.items() if region.allows(eth["va"], 8, Access.REMOTE_ATOMIC))
        packet = altered(packet, r_key=next(good, 0))
    yield packet


def without_pad(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    if packet.pad and bth["opcode"] == Operation.RDMA_READ_RESPONSE_ONLY:
        yield altered(replace(packet, payload=packet.payload + packet.pad))
    else:
        yield packet


def _is_fourth(packet: Packet, bth: dict[str, Any]) -> bool:
    return packet.layers[-1].values.get("msn") == 4


def damages_sends(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    whole = packet.payload and packet.trailer is not None and packet.trailer.ok
    whole = whole and (len(packet.payload) + bth["padcnt"]) % 4 == 0
    if whole and bth["opcode"] & 0x1F in (Operation.SEND_ONLY, Operation.SEND_ONLY_WITH_IMMEDIATE):
        packet = altered(replace(packet, payload=packet.payload[:-1] + bytes((packet.payload[-1] ^ 1,))))
    yield packet


def fails_of_answers(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    if bth["opcode"] == Operation.ACKNOWLEDGE and bth["psn"] == 17:
        peer.node.hca.qps[bth["destqp"]].to_error()
    yield packet


def takes_first(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    first = opcode_of(Transport.UD, Operation.SEND_FIRST)
    if bth["opcode"] == first:  # what follows its BTH is not decoded
        raw = packet.payload
        deth = Layer("deth", {"q_key": int.from_bytes(raw[:4], "big"), "srcqp": int.from_bytes(raw[5:8], "big")})
        layers = [*packet.layers[:-1], Layer("bth", {**bth, "opcode": first | Operation.SEND_ONLY}), deth]
        packet = Packet(layers, raw[8:], Trailer("icrc", 0))
    yield packet


def second_notice(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    yield packet
    if bth["opcode"] == CNP_OPCODE:
        yield packet


def marks_back(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    if bth["opcode"] != CNP_OPCODE:
        yield packet


def changes_copies(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    """What is sent again has another last byte."""
    key = bth["destqp"], bth["psn"], bth["opcode"]
    if key in peer.seen and bth["opcode"] == Operation.SEND_ONLY:
        packet = altered(replace(packet, payload=packet.payload[:-1] + bytes((packet.payload[-1] ^ 1,))))
    peer.seen.add(key)
    yield packet


def reads_take_one(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    """A READ of two packets takes one PSN."""
    if bth["opcode"] == Operation.RDMA_READ_REQUEST and packet.layers[-1].values["dmalen"] > peer.settings.path_mtu:
        peer.seen.add(bth["destqp"])
    shifted = bth["opcode"] == Operation.SEND_ONLY and bth["destqp"] in peer.seen
    yield altered(packet, psn=bth["psn"] - 1) if shifted else packet


def one_by_one(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    """An ACK of two messages is not taken."""
    owner = peer.node.hca.qps.get(bth["destqp"])  # not its number, which the next test has, too
    last = max((msn for qp, msn in peer.seen if qp is owner), default=0)
    msn = packet.layers[-1].values.get("msn", 0)
    if bth["opcode"] == Operation.ACKNOWLEDGE:
        peer.seen.add((owner, msn))
    if bth["opcode"] != Operation.ACKNOWLEDGE or msn < last + 2 or bth["psn"] == 17:
        yield packet


def damages_reads(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    if bth["opcode"] == Operation.RDMA_READ_RESPONSE_ONLY and bth["psn"] != 17:
        packet = altered(replace(packet, payload=bytes(len(packet.payload))))
    yield packet


def _swapped(size: int) -> Callable[[int], int]:
    return lambda value: int.from_bytes(value.to_bytes(size, "big"), "little")


# Copies of the halves of a queue pair, each with a fault --------------------------------------------------------------


class _ExecutesAgain(RcResponder):
    """Executes a duplicate of an atomic."""

    def _take_duplicate(self, parsed: Any, now: int) -> None:
        if parsed.step is MessageStep.ATOMIC:
            epsn, self.epsn = self.epsn, parsed.psn
            msn = self.msn
            self._atomic(parsed)
            self.epsn, self.msn = epsn, msn
        else:
            super()._take_duplicate(parsed, now)


class _AnswersPresent(RcResponder):
    """Answers an atomic with the value that is in memory afterwards."""

    def _answer_atomic(self, psn: int, original: int) -> None:
        saved = next(one for one in self.saved if one.psn == psn)
        region = self.qp.hca.regions.by_rkey[saved.r_key]
        super()._answer_atomic(psn, int.from_bytes(region.read(saved.va, 8), "little"))


class _CountsDuplicates(RcResponder):
    """Raises MSN for a duplicate of a WRITE or SEND."""

    def _take_duplicate(self, parsed: Any, now: int) -> None:
        if parsed.step not in (MessageStep.READ, MessageStep.ATOMIC):
            self.msn += 1
        super()._take_duplicate(parsed, now)


class _WritesDuplicates(RcResponder):
    """Writes the bytes of a duplicate of a WRITE of one packet."""

    def _take_duplicate(self, parsed: Any, now: int) -> None:
        if parsed.step is MessageStep.RDMA_WRITE_ONLY:
            region = self.qp.hca.regions.by_rkey[parsed.values["r_key"]]
            region.write(parsed.values["va"], parsed.payload)
        super()._take_duplicate(parsed, now)


class _StaysUp(RcResponder):
    """Sends NAK 0x62, and goes on."""

    def _fail(self, psn: int, syndrome: int, receive_status: Any = None) -> None:
        if syndrome == Nak.REMOTE_ACCESS_ERROR:
            self._answer_nak(psn, syndrome)
        else:
            super()._fail(psn, syndrome, receive_status)


class _WritesThenRefuses(RcResponder):
    """Writes the bytes of a WRITE, and then looks for a receive."""

    def _refuse(self, parsed: Any, syndrome: int) -> None:
        if syndrome & 0x60 == 0x20 and parsed.step is MessageStep.RDMA_WRITE_ONLY:
            region = self.qp.hca.regions.by_rkey[parsed.values["r_key"]]
            region.write(parsed.values["va"], parsed.payload)
        super()._refuse(parsed, syndrome)


class _KeepsKeys(RcResponder):
    """Forgets to invalidate."""

    def finish(self, parsed: Any) -> None:
        super().finish(parsed)
        key = parsed.values.get("r_key")
        if key in self.qp.hca.regions.by_rkey:
            self.qp.hca.regions.by_rkey[key].invalidated = False


class _TellsAllReceives(RcResponder):
    """Tells credits of one receive more than there is."""

    def _credit_code(self) -> int:
        return super()._credit_code() + 1


class _SendsLater(RcResponder):
    """Sends short answers before the answer to a READ that is queued before them."""

    def pump(self, now: int, out: list[Any], budget: int) -> int:
        self.answers = type(self.answers)(sorted(self.answers, key=lambda answer: hasattr(answer, "count")))
        return super().pump(now, out, budget)


def unchecked(name: str, *kinds: MessageStep) -> type[RcResponder]:
    """Return a responder that leaves out a check, for all packets or for those at these places of a message."""
    original = getattr(RcResponder, f"_check_{name}")

    class Unchecked(RcResponder):
        def __init__(self, qp: Any) -> None:
            super().__init__(qp)
            self._checks = {
                operation: tuple(
                    check for check in checks if check is not original or (kinds and STEPS[operation] not in kinds)
                )
                for operation, checks in self._checks.items()
            }

    return Unchecked


class _CountsPackets(RcResponder):
    """Raises MSN for each packet of a message."""

    def _write_or_send(self, parsed: Any, now: int) -> None:
        if parsed.step in FIRST or parsed.step in MIDDLE:
            self.msn += 1
        super()._write_or_send(parsed, now)


class _CountsAsked(RcResponder):
    """Raises MSN only for messages whose last packet asks for an ACK."""

    def _write_or_send(self, parsed: Any, now: int) -> None:
        msn = self.msn
        super()._write_or_send(parsed, now)
        if not parsed.a:
            self.msn = msn


class _AnswersAnyRead(RcResponder):
    """Answers a duplicate of a READ whatever it asks for."""

    def _read_again(self, parsed: Any) -> None:
        self._respond(parsed.psn, 1, parsed.values)


class _NeverAfresh(UcResponder):
    """Waits for the PSN that is expected for ever."""

    def take(self, parsed: Any, now: int) -> None:
        if parsed.psn == self.epsn:
            super().take(parsed, now)


class _AnyOrder(RcResponder):
    """Takes each operation as if the message before it had ended, or this one had begun."""

    def take(self, parsed: Any, now: int) -> None:
        if parsed.psn == self.epsn and parsed.step is not None and parsed.step not in MESSAGE_STATES[self.phase]:
            self.phase = next(phase for phase, steps in MESSAGE_STATES.items() if parsed.step in steps)
        super().take(parsed, now)


class _AnyLength(RcResponder):
    """Takes payloads of any length."""

    def size_is_right(self, parsed: Any) -> bool:
        return True


class _KeyOfNothing(RcResponder):
    """Checks the key of a WRITE or READ of no bytes."""

    def keys_are_good(self, parsed: Any, right: Any, length: int) -> bool:
        return super().keys_are_good(parsed, right, max(length, 1))


def checked_by(pd: bool = True, right: bool = True, further: int = 0) -> type[RcResponder]:
    """Return a responder that looks at keys without domain, without rights, or with a range that is too long."""

    class CheckedBy(RcResponder):
        def keys_are_good(self, parsed: Any, wanted: Any, length: int) -> bool:
            region = self.qp.hca.regions.by_rkey.get(parsed.values["r_key"])
            if region is None or not length:
                return super().keys_are_good(parsed, wanted, length)
            at = parsed.values["va"]
            inside = region.addr <= at and at + length <= region.addr + region.length + further
            fits = (not pd or region.pd == self.qp.pd) and (not right or region.access & wanted == wanted)
            return inside and fits and not region.invalidated

        def store(self, parsed: Any) -> None:
            region = self.qp.hca.regions.by_rkey.get(parsed.values.get("r_key", 0))
            only = parsed.step is MessageStep.RDMA_WRITE_ONLY and region is not None
            if only and not region.allows(parsed.values["va"], len(parsed.payload), Access.REMOTE_WRITE):
                return  # whatever the key allows
            super().store(parsed)

    return CheckedBy


class _EndsInError(UcResponder):
    """Goes to ERR where UC drops a message."""

    def _fault(self, parsed: Any) -> str | None:
        found = super()._fault(parsed)
        if found is not None:
            self.qp.to_error()
        return found


class _Recounts(UcResponder):
    """Takes a WRITE without the right of the queue pair."""

    def _fault(self, parsed: Any) -> str | None:
        found = super()._fault(parsed)
        return None if found == "no right" else found


class _JoinsGaps(UcResponder):
    """Takes the last packet of a message although one before it is missing."""

    def take(self, parsed: Any, now: int) -> None:
        if parsed.step in MESSAGE_STATES[self.phase]:
            self.epsn = parsed.psn
        super().take(parsed, now)


class _AnyQkey(UdResponder):
    """Takes datagrams with any Q_Key."""

    def _drop_reason(self, parsed: Any) -> str | None:
        found = super()._drop_reason(parsed)
        return None if found == "q_key" and self.qp.receives.items else found


class _CheckedPsn(UdResponder):
    """Takes datagrams in the order of their PSNs alone."""

    def take(self, parsed: Any, now: int) -> None:
        if parsed.psn >= self.epsn:
            self.epsn = parsed.psn + 1
            super().take(parsed, now)


class RoceFault(NamedTuple):
    """A fault of a peer, and the tests that it makes fail."""

    failing: tuple[str, ...]
    arrives: Change | None = None
    leaves: Change | None = None
    half: type[RcResponder] | type[UcResponder] | None = None
    """Responder that replaces ours."""


def ids(text: str) -> tuple[str, ...]:
    """Return ids of tests: "RC 001 002, UC 003" are ROCE-RC-001, ROCE-RC-002 and ROCE-UC-003."""
    groups = (group.split() for group in text.split(",") if text)
    return tuple(f"ROCE-{kind}-{number}" for kind, *numbers in groups for number in numbers)


Op, N = Operation, Nak
READS = (Op.RDMA_READ_RESPONSE_FIRST, Op.RDMA_READ_RESPONSE_LAST, Op.RDMA_READ_RESPONSE_ONLY)
ROCE_FAULTS: dict[str, RoceFault] = {
    "a packet with a wrong ICRC is taken": RoceFault(ids("RC 050, RQ 016, UC 013, UD 012"), takes_wrong_icrc),
    "a duplicate of an atomic is executed again": RoceFault(ids("RC 040 041 042"), half=_ExecutesAgain),
    "a duplicate of a WRITE or SEND gets no ACK": RoceFault(
        ids("RC 032 033 034 035 051 054 056 092"), lost(Op.RDMA_WRITE_ONLY, Op.SEND_ONLY)
    ),
    "a duplicate of a WRITE is executed again": RoceFault(ids("RC 034"), half=_WritesDuplicates),
    "a duplicate raises MSN": RoceFault(ids("RC 034 035 043 045"), half=_CountsDuplicates),
    "a duplicate of a READ is not answered": RoceFault(ids("RC 036 037"), lost(Op.RDMA_READ_REQUEST)),
    "a gap gets an ACK in place of NAK": RoceFault(ids("RC 032 033 044 046"), None, acknowledges_gaps),
    "a gap gets nothing": RoceFault(ids("RC 032 033 044 046"), None, without_nak(N.PSN_SEQUENCE_ERROR)),
    "NAK PSN sequence error has a PSN one too high": RoceFault(ids("RC 032 033 044 046"), None, nak_of_request),
    "ACKs have a PSN one too high behind the wrap": RoceFault(ids("RC 030 031"), None, wraps_late),
    "all answers of a READ have one PSN": RoceFault(
        ids("RC 002 004 013 014 027 031 038 045 046, UC 002"), None, once_read
    ),
    "NAK invalid request is NAK remote operational error": RoceFault(
        ids("RC 057 058 059 060 061 062 063 064 065 066 067 068 069 070 071 072 084 085 086 087 088"),
        None,
        wrong_nak(N.INVALID_REQUEST, N.REMOTE_OPERATIONAL_ERROR),
    ),
    "a bad key gets NAK remote operational error": RoceFault(
        ids("RC 009 010 073 074 075 076 077 078 079 080 081 082 083 089 094"),
        None,
        wrong_nak(N.REMOTE_ACCESS_ERROR, N.REMOTE_OPERATIONAL_ERROR),
    ),
    "after NAK remote access error the queue pair goes on": RoceFault(ids("RC 094"), half=_StaysUp),
    "the RNR timer is 0": RoceFault(
        ids("RC 090 091 092"), None, with_field("syndrome", lambda code: 0x20 if code >> 5 == 1 else code)
    ),
    "a WRITE is stored although its receive is missing": RoceFault(ids("RC 091"), half=_WritesThenRefuses),
    "no receive: the SEND is lost in silence": RoceFault(
        ids("RC 090 091 092 093"), None, without_nak(*range(0x20, 0x40))
    ),
    "credits are told of one receive too many": RoceFault(ids("RC 028 092"), half=_TellsAllReceives),
    "an ACK overtakes the answer to a READ": RoceFault(ids("RC 027"), half=_SendsLater),
    "the transport version is not looked at": RoceFault(ids("RC 051"), with_field("tver", lambda version: 0)),
    "the P_Key is not looked at": RoceFault(ids("RC 054, UC 013, UD 004"), fits_partition),
    "a queue pair that does not exist answers": RoceFault(ids("RC 052"), answers_strangers),
    "READ requests leave one address too high": RoceFault(
        ids(
            "RC 001 002 003 004 013 019 029 032 034 036 037 038 045 046 050 066 077 078 091 094, UC 001 002 007 011 012"
        ),
        with_field("va", lambda va: va + 1, Op.RDMA_READ_REQUEST),
    ),
    "atomics answer the value behind": RoceFault(ids("RC 016 017 018 040 041 042"), half=_AnswersPresent),
    "SEND with invalidate does not invalidate": RoceFault(ids("RC 009 010"), half=_KeepsKeys),
    "immediates are of the other byte order": RoceFault(
        ids("RC 003 004 007 008, UC 004, UD 002"),
        with_field("immdt", lambda value: int.from_bytes(value.to_bytes(4, "big"), "little")),
    ),
    "the solicited event is lost": RoceFault(ids("RC 021, UD 010"), with_field("se", lambda se: 0)),
    "answers have a = 1": RoceFault(
        ids("RC 024"), None, with_field("a", lambda a: 1, Op.ACKNOWLEDGE, Op.ATOMIC_ACKNOWLEDGE, *READS)
    ),
    "no CNP is sent": RoceFault(ids("RC 096, UD 011"), None, marks_back),
    "a CNP has no BECN": RoceFault(ids("RC 096, UD 011"), None, with_field("becn", lambda becn: 0)),
    "CNPs are sent for data that is not marked": RoceFault(ids("RC 098"), with_ecn(3)),
    "a CNP is acknowledged": RoceFault(ids("RC 097"), acknowledges_cnp),
    "two CNPs are sent at once": RoceFault(ids("RC 096, UD 011"), None, second_notice),
    "the order of operations is not checked": RoceFault(ids("RC 058 060 061 062 063 064"), half=_AnyOrder),
    "lengths of packets are not checked": RoceFault(ids("RC 065 066 067 068 069 070 071"), half=_AnyLength),
    "rights of the queue pair are not checked": RoceFault(ids("RC 084 085 086"), half=unchecked("rights")),
    "more READs are answered than the queue pair may": RoceFault(ids("RC 087"), half=unchecked("resources")),
    "the address of an atomic is not checked": RoceFault(ids("RC 088"), half=unchecked("alignment")),
    "the key of an atomic is not checked": RoceFault(ids("RC 075"), wrong_key_of_atomic),
    "the domain of memory is not checked": RoceFault(ids("RC 083"), half=checked_by(pd=False)),
    "rights of memory are not checked": RoceFault(ids("RC 080 081 082"), half=checked_by(right=False)),
    "memory is a few bytes too long": RoceFault(ids("RC 076 077 078"), half=checked_by(further=64)),
    "the key of nothing is checked": RoceFault(ids("RC 012 015"), half=_KeyOfNothing),
    "packets of another transport are taken": RoceFault(ids("RC 053"), of_our_transport),
    "reserved bits are looked at": RoceFault(ids("RC 022"), drops(lambda packet, bth: bth["rsvd"] != 0)),
    "m = 0 is not taken": RoceFault(
        ids("RC 022"), drops(lambda packet, bth: not bth["m"] and bth["opcode"] != CNP_OPCODE)
    ),
    "one source port is taken": RoceFault(ids("RC 023"), drops(lambda packet, bth: packet["udp"]["sport"] != 50_000)),
    "a limited member is not taken": RoceFault(ids("RC 055"), drops(lambda packet, bth: bth["p_key"] == 0x7FFF)),
    "data of READs is not padded": RoceFault(ids("RC 020"), None, without_pad),
    "the last ACK is lost": RoceFault(ids("RC 020 025 030"), None, drops(_is_fourth)),
    "MSN counts packets": RoceFault(
        ids("RC 002 004 006 008 010 013 045 046 060 061 062 063 064 066 068 070"), half=_CountsPackets
    ),
    "MSN counts what asks for an ACK": RoceFault(ids("RC 026"), half=_CountsAsked),
    "a READ that was not asked for is answered as a duplicate": RoceFault(ids("RC 038 039"), half=_AnswersAnyRead),
    "a SEND of no bytes is dropped": RoceFault(
        ids("RC 011, UD 008"), drops(lambda packet, bth: bth["opcode"] & 0x1F == Op.SEND_ONLY and not packet.payload)
    ),
    "the last byte of a SEND is wrong": RoceFault(
        ids("RC 005 007 035, UC 003 005 006 008 009 010 013, UD 001 002 003 004 005 008 009 011 012"), damages_sends
    ),
    "ACKs for nothing take the queue pair down": RoceFault(ids("RC 095"), fails_of_answers),
    "UC never begins afresh": RoceFault(ids("UC 005 006"), half=_NeverAfresh),
    "UD takes the first packet of a message": RoceFault(ids("UD 009"), takes_first),
    "nothing is sent again": RoceFault(
        ids("RQ 007 008 009 012 013 018"), None, lost(Op.SEND_ONLY, Op.RDMA_READ_REQUEST)
    ),
    "what is sent again has another byte": RoceFault(ids("RQ 007 008 009 012 018"), None, changes_copies),
    "no request asks for an ACK": RoceFault(ids("RQ 001 002 003 007 017"), None, with_field("a", lambda a: 0)),
    "the time of an RNR NAK is not waited for": RoceFault(
        ids("RQ 009"), with_field("syndrome", lambda code: 0x21 if code == 0x3F else code)
    ),
    "NAK remote access error is taken for an ACK": RoceFault(
        ids("RQ 010"), with_field("syndrome", lambda code: 0x1F if code == 0x62 else code)
    ),
    "NAK invalid request is taken for an ACK": RoceFault(
        ids("RQ 011"), with_field("syndrome", lambda code: 0x1F if code == 0x61 else code)
    ),
    "a READ is asked for again from its beginning on": RoceFault(
        ids("RQ 015"), None, with_field("va", lambda va: OUR_ADDRESS, Op.RDMA_READ_REQUEST)
    ),
    "a READ takes one PSN": RoceFault(ids("RQ 004"), None, reads_take_one),
    "data of a READ of one packet is not stored": RoceFault(ids("RQ 005"), damages_reads),
    "the length of a WRITE is that of its first packet": RoceFault(
        ids("RQ 002 003"), None, with_field("dmalen", lambda size: min(size, 256), Op.RDMA_WRITE_FIRST)
    ),
    "immediates leave in the other byte order": RoceFault(ids("RQ 003"), None, with_field("immdt", _swapped(4))),
    "operands leave in the other byte order": RoceFault(ids("RQ 006"), None, with_field("swapdt", _swapped(8))),
    "requests skip PSN 0": RoceFault(ids("RQ 017"), None, with_field("psn", lambda psn: psn or 1, Op.RDMA_WRITE_LAST)),
    "an ACK of several messages is not taken": RoceFault(ids("RQ 004 014 018"), one_by_one),
    "UC and UD are acknowledged": RoceFault(
        ids("RC 053, UC 001 007 008 010 012, UD 003 004 005 006"), acknowledges_unreliable
    ),
    "an error takes UC down": RoceFault(ids("UC 007 008 009 010"), half=_EndsInError),
    "UC writes without the right": RoceFault(ids("UC 012"), half=_Recounts),
    "UC takes a message with a gap": RoceFault(ids("UC 005"), half=_JoinsGaps),
    "UD takes any Q_Key": RoceFault(ids("UD 003"), half=_AnyQkey),
    "UD drops what comes out of order": RoceFault(ids("UD 007"), half=_CheckedPsn),
}


def roce_peer_with(fault: RoceFault) -> FaultyRocePeer:
    """Return a peer with a fault."""

    def method(change: Change | None) -> Any:
        return None if change is None else staticmethod(change)

    kind = type("FaultyRoce", (FaultyRocePeer,), {"arrives": method(fault.arrives), "leaves": method(fault.leaves)})
    peer: FaultyRocePeer = kind()
    if fault.half is not None:
        _replace_half(peer, fault.half)
    return peer


def _replace_half(peer: FaultyRocePeer, half: type[RcResponder] | type[UcResponder]) -> None:
    """Give queue pairs another responder as soon as they have one."""
    opened = peer.tested.open

    def open_then_replace(told: dict[str, Any]) -> dict[str, Any]:
        answer = opened(told)
        for qp in peer.node.hca.qps.values():
            if type(qp.responder) is half.__base__:
                qp.responder = half(qp)
        return answer

    peer.tested.open = open_then_replace  # type: ignore[method-assign]
