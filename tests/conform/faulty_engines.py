# SPDX-License-Identifier: GPL-2.0-only
"""Deliberate faults inside our endpoint: one rule of an engine is another one, or is missing.

`ENGINE_FAULTS` lists each one with the tests that have to fail, as `faulty_peers.FAULTS` does.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.conform.faulty_peers import ACKS, REQUESTS, Change, FaultyPeer, Patch, PeerFault, with_field
from uetproto.engine.pds import control, destination, lifecycle, psn_window, sublayer
from uetproto.engine.pds.pdc import Pdc
from uetproto.engine.pds.psn_window import PsnWindow, StoredSlot, Verdict
from uetproto.engine.pds.service import SES_SIZE, build_default_response
from uetproto.engine.pds.sublayer import Pds
from uetproto.engine.ses import atomics, checks
from uetproto.wire.headers.uet_pds import AckReq, NackCode, NextHdr
from uetproto.wire.headers.uet_ses import AtomicDatatype
from uetproto.wire.packet import Packet

N = NackCode
classify, take, advance, nack = PsnWindow.classify, PsnWindow.take, PsnWindow._advance, Pdc.nack
execute, duplicate, emit_ack = atomics.execute, destination._duplicate, destination.emit_ack
handle_not_new, current_slot = destination.handle_not_new, destination.current_slot


def judged(verdict: Verdict, other: Verdict) -> Patch:
    """A PSN of one kind is taken for one of another kind."""

    def patched(window: PsnWindow, psn: int) -> Verdict:
        found = classify(window, psn)
        return other if found is verdict else found

    return PsnWindow, "classify", patched


def holds_nothing(window: PsnWindow) -> None:
    cleared, window.max_clear = window.max_clear, window.max_rcvd
    advance(window)
    window.max_clear = cleared


def takes_and_forgets(window: PsnWindow, psn: int, slot: Any) -> None:
    take(window, psn, StoredSlot(slot.next_hdr, None) if isinstance(slot, StoredSlot) else slot)


def delivers_again(pdc: Pdc, packet: Any, datagram: Any, now: int, *rest: Any) -> None:
    if packet.retx and hasattr(packet, "next_hdr") and packet.next_hdr in SES_SIZE:
        data, at = datagram.header, packet.size
        payload = datagram.payload or data[at + SES_SIZE[packet.next_hdr] :]
        pdc.user.on_request(pdc, packet.psn ^ 1 << 20, packet.next_hdr, data, at, payload, now)
    duplicate(pdc, packet, datagram, now, *rest)


def nacks(change: Callable[[NackCode, int], tuple[NackCode, int, bool]]) -> Patch:
    """NACKs of a PDC have another code or payload, or tell no PDCID."""

    def patched(
        pdc: Pdc, code: NackCode, packet: Any, datagram: Any, payload: int = 0, *, nameless: bool = False
    ) -> None:
        code, payload, hidden = change(code, payload)
        nack(pdc, code, packet, datagram, payload, nameless=nameless or hidden)

    return Pdc, "nack", patched


def answers_cp_as_request(pdc: Pdc, packet: Any, datagram: Any, now: int) -> bool:
    pdc.learn(packet.spdcid)
    pdc.rx.take(packet.psn, psn_window.DONE)
    response = build_default_response(0)
    destination.send_ack(pdc, packet.psn, NextHdr.RESPONSE, response, 0, packet.retx, AckReq.NONE, datagram.entropy)
    return True


def acks(change: Callable[[dict[str, Any]], dict[str, Any]], *modules: Any) -> tuple[Patch, ...]:
    """ACKs have other values, by the names of the arguments of `emit_ack`."""
    names = emit_ack.__code__.co_varnames[: emit_ack.__code__.co_argcount]

    def patched(*given: Any, **named: Any) -> None:
        values = dict(zip(names, given, strict=False)) | named
        emit_ack(**change(values))

    return tuple((module, "emit_ack", patched) for module in modules)


def refuses_trimmed_copies(pdc: Pdc, packet: Any, datagram: Any, now: int, *rest: Any) -> bool:
    if datagram.trimmed:
        destination._refuse_trimmed(pdc, packet, datagram)
        return False
    return handle_not_new(pdc, packet, datagram, now, *rest)


def without_check(name: str) -> tuple[Patch, ...]:
    """A check of ses.md §10 is not made."""
    [function] = {check.function for check in checks.CHECKS if check.name == name}

    def left(functions: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(one for one in functions if one is not function)

    tables = {table: {key: left(row) for key, row in getattr(checks, table).items()}
              for table in ("_ENDING", "_MESSAGES", "_PACKETS")}  # fmt: skip
    return tuple((checks, table, value) for table, value in (
        ("_OPCODE", left(checks._OPCODE)), ("_PLACE", left(checks._PLACE)), *tables.items()
    ))  # fmt: skip


def amo(change: Callable[..., Any]) -> Patch:
    """Atomics give another result: `change` gets that of `execute`, and what is called for `execute` again."""

    def patched(opcode: int, datatype: int, memory: Any, operands: Any, compare: Any = b"", **more: Any) -> Any:
        return change(opcode, datatype, memory, operands, compare, **more)

    return atomics, "execute", patched


def one_more(opcode: int, datatype: int, memory: Any, *rest: Any, **more: Any) -> Any:
    found = execute(opcode, datatype, memory, *rest, **more)
    return replace_outcome(found, memory=bytes((found.memory[0] + 1 & 0xFF, *found.memory[1:])))


def new_value(opcode: int, datatype: int, memory: Any, *rest: Any, **more: Any) -> Any:
    found = execute(opcode, datatype, memory, *rest, **more)
    wire = atomics.wire_order(found.memory, datatype) if found.old else found.old
    return replace_outcome(found, old=wire)


def signed_alike(opcode: int, datatype: int, *rest: Any, **more: Any) -> Any:
    return execute(opcode, AtomicDatatype.INT64 if datatype == AtomicDatatype.UINT64 else datatype, *rest, **more)


def swaps_always(opcode: int, datatype: int, memory: Any, operands: Any, compare: Any, **more: Any) -> Any:
    return execute(opcode, datatype, memory, operands, atomics.wire_order(memory, datatype) if compare else b"", **more)


def replace_outcome(found: Any, **changed: Any) -> Any:
    return found._replace(**changed) if hasattr(found, "_replace") else replace(found, **changed)


def never_again(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    if pds["type"] not in REQUESTS or not pds["retx"]:
        yield packet


def _nothing(*_: Any, **__: Any) -> None:
    return None


def fault(tests: str, *patches: Patch, leaves: Change | None = None) -> PeerFault:
    """Return a fault, and the tests that it makes fail, without their "UET-"."""
    return PeerFault(tuple(f"UET-{name}" for name in tests.split()), None, leaves, patches)


def _range(layer: str, first: int, last: int, *without: int) -> str:
    return " ".join(f"{layer}-{number:03}" for number in range(first, last + 1) if number not in without)


ENGINE_FAULTS: dict[str, PeerFault] = {
    "CLEAR_PSN of requests is ignored": fault("PDS-043 PDS-044", (destination, "apply_clear", _nothing)),
    "CLOSE_CMD clears nothing": fault("PDS-056", (lifecycle, "apply_clear", _nothing)),
    "a guaranteed response does not hold CACK": fault(
        f"{_range('PDS', 40, 48)} PDS-056 SES-006 {_range('SES', 20, 46, 39)}",  # pds.md §9, and each error
        (PsnWindow, "_advance", holds_nothing),
    ),
    "a stored response is forgotten": fault("PDS-041 PDS-047 SES-006", (PsnWindow, "take", takes_and_forgets)),
    "another Start_PSN is no fault": fault("PDS-007 PDS-016", (Pds, "_syn_fits", lambda *_: True)),
    "PDCIDs of the sender are not compared": fault("PDS-009", (sublayer, "is_sender", lambda *_: True)),
    "a gap in ROD is taken": fault("PDS-039", judged(Verdict.GAP, Verdict.NEW)),
    "the window has no end": fault("PDS-025", judged(Verdict.AHEAD, Verdict.NEW)),
    "a PSN before Start_PSN is a duplicate": fault("PDS-026", judged(Verdict.BEHIND, Verdict.PRIOR)),
    "a PSN above CACK is new each time": fault("PDS-033 PDS-047 SES-006", judged(Verdict.DUPLICATE, Verdict.NEW)),
    "a write is done twice": fault("PDS-022 PDS-038 SES-006", (destination, "_duplicate", delivers_again)),
    "PSNs are compared without their wrap": fault("PDS-028", (psn_window, "_M32", -1)),
    "NACKs of a PDC do not tell it": fault(
        "PDS-024 PDS-025 PDS-052 TRIM-001 TRIM-002 TRIM-005 TRIM-006",
        nacks(lambda code, payload: (code, payload, True)),
    ),
    "ROD_OOO does not tell the expected PSN": fault("PDS-024", nacks(lambda code, payload: (code, 0, False))),
    "what is missing is being worked on": fault(
        "ENC-004 PDS-052",
        nacks(lambda code, payload: (N.RCVD_SES_PROCG if code == N.PKT_NOT_RCVD else code, payload, False)),
    ),
    "a NOOP is answered as a request is": fault(
        "PDS-002 PDS-050 PDS-063", (control, "take_cp_in_turn", answers_cp_as_request)
    ),
    "the answer to a PROBE has no p": fault(
        "PDS-042 PDS-045 PDS-046 PDS-053", *acks(lambda values: values | {"opaque": None}, control)
    ),
    "each ACK says that its packet was marked": fault(
        "PDS-029", *acks(lambda values: values | {"marked": 1}, destination, control)
    ),
    "ACK_REQ finds no stored response": fault("PDS-047", (control, "current_slot", _nothing)),
    "a trimmed copy is asked for again": fault("TRIM-007", (destination, "handle_not_new", refuses_trimmed_copies)),
    "the closing ACK does not wait for return data": fault(
        "PDS-067 PDS-068", (lifecycle, "_has_unsent", lambda pdc: False)
    ),
    "requests behind CLOSE_CMD are taken": fault(
        "PDS-068", *((module, "is_beyond_close", lambda *_: False) for module in (destination, control))
    ),
    "return data is not sent again": fault("PDS-069", leaves=never_again),
    "flags and lengths are not checked": fault("SES-027 SES-028 SES-036", *without_check("flags and lengths")),
    "packets of a message may differ": fault("SES-042 SES-043", *without_check("packet consistent with its message")),
    "ie is ignored": fault("SES-037", *without_check("ie = 0")),
    "any version is taken": fault("SES-020", *without_check("version is 0")),
    "any opcode is taken in any mode": fault("SES-022", *without_check("opcode allowed in this mode and form")),
    "RUDI reaches all memory": fault("RUDI-003", *without_check("RUDI: region is IDEMPOTENT_SAFE")),
    "atomics add one more": fault("PDS-022 SES-005 SES-006 SES-007 SES-013 SES-014", amo(one_more)),
    "a fetch returns the new value": fault("SES-006 SES-007 SES-013 SES-014", amo(new_value)),
    "unsigned numbers are compared as signed ones": fault("SES-014", amo(signed_alike)),
    "compare and swap does not compare": fault("SES-007", amo(swaps_always)),
    "read data tells another message": fault(
        "SES-001 SES-002 SES-010",
        leaves=with_field("read_request_message_id", lambda number: number ^ 1, (*ACKS, *REQUESTS)),
    ),
    "responses tell no list": fault("SES-001 SES-004", leaves=with_field("list", lambda value: 3, ACKS)),
}
