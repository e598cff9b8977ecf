# SPDX-License-Identifier: GPL-2.0-only
"""This machine drives packet delivery: PDCs in both roles, with messages whose SES headers are made here.

The implementation answers each request at once with the default response. See pds.md §18; UE 1.0.1 §3.5.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import hypothesis.strategies as st
from hypothesis.stateful import precondition

from uetproto.audit.reader.options import Options
from uetproto.check.uet.scripted_ses import opaque_packets
from uetproto.engine.contract import MILLISECOND, SECOND
from uetproto.engine.ses.headers import build_response_data
from uetproto.steps.uet import MessageSpec
from uetproto.testing.adapters.adapter import MODES, REAL, WorkRefused
from uetproto.testing.adapters.engines import CONGESTION, GUARANTEED, LATE, PdcEngine
from uetproto.testing.adapters.guarded import Observed
from uetproto.testing.machines.judge import judged_at_port
from uetproto.testing.machines.machine import ProtocolMachine, start, step
from uetproto.testing.machines.pdc_duties import PROMPT, Duties
from uetproto.testing.machines.pdc_model import PdcModel, SentMessage
from uetproto.testing.machines.world import IMPLEMENTATION, PEER, WorldFailure
from uetproto.wire.headers.uet_pds import Mode

PAYLOAD = 64
"""Bytes of payload of a full packet."""
ENDLESS = {"max_rto_retx_cnt": 15, "max_nack_retx_cnt": 31, "idle_time": 0, "pend_timeout": 600 * SECOND}
"""Settings with which no PDC gives up or closes by itself."""
TIMES = {"nack_retx_time": MILLISECOND, "pds_clear_time": MILLISECOND}
"""Times that are judged if the implementation follows them."""
PDCS = 1000
"""Number of PDCs that no run needs."""
KNOBS: dict[str, tuple[Any, ...]] = {
    "mp_range": (128, 256, 1024), "default_mpr": (8, 1, 2), "ack_gen_trigger": (16384, 0, 2048),
    "enb_ack_per_pkt": (False, True), "ack_cc": ("when_gap", "always", "never"),
    "clear_cmd": ("timer", "immediate"), "sack_base": ("tracked", "trigger", "cack_plus_1"),
    "dup_without_retx": ("drop", "answer"), "ar_on_eom": (True, False), "ack_on_gap_close": (True, False),
    "window_base": ("clear", "cack"), "clear_at": ("packet", "message"), GUARANTEED: (False, True),
    LATE: (True, False), "secure_start": ("off", "expected", "random"), "max_pdcs": (PDCS, 1, 2),
    "nack_retx_time": (MILLISECOND, 5 * MILLISECOND), "pds_clear_time": (MILLISECOND, 10 * MILLISECOND),
    "close_req_time": (1000 * MILLISECOND, MILLISECOND), CONGESTION: ("off", "nscc", "rccc", "nscc+rccc"),
}  # fmt: skip
"""Settings that a run may draw, each with its values; all of them are legal (pds.md §17, §20)."""
OF_PEER = "peer_"
PEERS: dict[str, tuple[Any, ...]] = {"max_pdcs": (PDCS, 1), "max_gtd_del": (65535, 1, 2), "mp_range": (1024, 128)}
"""Limits of our engine, of which a run may draw some with the prefix `peer_`. They are for implementations that may be
refused without end (`max_nack_retx_cnt`)."""
CONTROLS = ("noop", "probe", "negotiate", "ask_credit", "give_credit")
"""Operations that send control packets."""
OPENING = ("message", "reserved_message", "noop", "negotiate")
"""Operations that need nothing before them: a fresh implementation does them."""
SIZES = (1, 2, 1, 2, 3, 5, 20, 1, 2, 150)
"""Numbers of packets of a message."""
FEW = 5
"""Number of packets of a message that no implementation refuses as too long."""
AUDITED = ("-SES-DATA-UNASKED",)
"""Rules of the audit: the data of the return direction answers no read, as there is no SES."""
MOST_CREDIT = 1024
"""Number of quanta, and one more, that a control packet grants or asks for where credits are in use."""
REFUSED = "PDS-REFUSED"
_JOB = 101
_NODES = st.sampled_from((IMPLEMENTATION, PEER))


def drawn_knobs() -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for the settings of a run."""
    values = KNOBS | {OF_PEER + name: legal for name, legal in PEERS.items()}
    return st.fixed_dictionaries({}, optional={name: st.sampled_from(legal) for name, legal in values.items()})


class PdcMachine(ProtocolMachine):
    """This machine drives an implementation of PDS, as the initiator and as the target of PDCs."""

    name = "pdc"
    peer = PdcEngine
    options = judged_at_port(Options(crc="on", rules=AUDITED))
    observed = Observed({"delivery": {"data": bytes}, "completion": {"id": int, "ok": bool}}, {"pdcs": list})
    sealed: ClassVar[bool] = False
    """Whether frames are sealed, so that what they owe is not judged."""

    @start(seed=st.integers(0, 255), knobs=drawn_knobs())
    def begin(self, seed: int, knobs: dict[str, Any]) -> None:
        """Reset both ends."""
        self.reset_ends(seed, knobs, {})

    def reset_ends(self, seed: int, knobs: dict[str, Any], more: dict[str, Any]) -> None:
        """Make the model and the world; `more` is added to the configuration of both ends."""
        capabilities = self.adapter().capabilities
        self.serial = 0
        self.fresh = True
        """Whether no work was submitted yet."""
        self.model = PdcModel(self.verdicts, capabilities.observable, capabilities.losses)
        self.endless = "max_rto_retx_cnt" in capabilities.knobs
        """Whether no PDC of the implementation gives up."""
        followed = self.knobs(ENDLESS | TIMES | knobs)
        limits = {name.removeprefix(OF_PEER): value for name, value in knobs.items() if name.startswith(OF_PEER)}
        if "max_nack_retx_cnt" not in followed:
            limits = {}
        if "max_pdcs" not in limits or followed.get("max_pdcs", PDCS) < PDCS:
            limits["max_pdcs"] = PDCS  # two ends with one PDC each may refuse each other without end
        self.short = min(followed.get("max_pdcs", PDCS), limits["max_pdcs"]) < PDCS
        self.most = FEW if limits.get("max_gtd_del", PDCS) < PDCS else max(SIZES)
        """Number of packets that a message may have: of many, each would be refused once for each one before it."""
        self.hasty = followed.get("close_req_time", SECOND) < SECOND
        """Whether a target may end a PDC in error, because the close that it asked for takes too long."""
        self.closes = self.short or self.sealed
        """Whether PDCs may close before the end of the run."""
        self.model.in_order = not (self.short or self.hasty)
        self.late = followed.get(LATE, False)
        self.credits = "rccc" in followed.get(CONGESTION, "off")
        """Whether CREDIT and CREDIT_REQ change what an end may send, and is granted."""
        self.duties = Duties(self.verdicts, followed, capabilities.time != REAL)
        self.duties.late = self.late
        self.make_world({"seed": seed, "knobs": followed, **more}, ({}, {"knobs": followed | ENDLESS | limits}))
        if not self.sealed:
            self.world.watch = self.duties

    # Work

    def submit(self, node: int, work: dict[str, Any]) -> None:
        """Submit an operation. Raises `WorkRefused`, and `WorldFailure` if a fresh implementation refuses it."""
        fresh, self.fresh = self.fresh, False
        try:
            self.world.submit(node, work)
        except WorkRefused as why:
            if fresh and node == IMPLEMENTATION and work["op"] in OPENING and len(work.get("packets", ())) <= FEW:
                text = f"the implementation refuses {work['op']} although nothing was submitted before: {why}"
                raise WorldFailure(REFUSED, text) from why
            raise

    def _send(self, node: int, op: str, mode: str, packets: Sequence[bytes]) -> None:
        message = SentMessage(self.serial, mode, tuple(each.hex() for each in packets))
        self.model.submit(node, message)
        try:
            self.submit(node, {"op": op, "id": message.number, "mode": mode, "packets": [*message.packets]})
        except WorkRefused:
            self.model.withdraw(node, message)
            raise

    def can(self, op: str) -> bool:
        """Return whether a run has begun, and the implementation does an operation."""
        return self.is_begun() and op in self.adapter().capabilities.work

    @precondition(ProtocolMachine.is_begun)
    @step(node=_NODES, mode=st.sampled_from(MODES), packets=st.sampled_from(SIZES))
    def message(self, node: int, mode: str, packets: int) -> None:
        """An end sends a message."""
        self._message(node, mode, packets)

    def _message(self, node: int, mode: str, packets: int) -> None:
        modes = self.adapter().capabilities.modes
        mode = mode if mode in modes else modes[0]
        self.serial += 1
        packets = min(packets, self.most)
        spec = MessageSpec(1 if mode == "uud" else packets, Mode[mode.upper()], "send" if mode == "uud" else "write",
                           self.serial)  # fmt: skip
        self._send(node, "message", mode, opaque_packets(spec, PAYLOAD))

    @precondition(ProtocolMachine.is_begun)
    @step(node=_NODES, mode=st.sampled_from(MODES[:2]))
    def exchange(self, node: int, mode: str) -> None:
        """An end sends a message of one packet, and the network delivers all frames in order."""
        self._message(node, mode, 1)
        for _ in range(FEW * FEW):
            if self.world.flight:
                self.world.deliver(self.world.number(0))

    @precondition(lambda self: self.can("reserved_message"))
    @step(node=_NODES, packets=st.sampled_from(SIZES[:4]))
    def reserved_message(self, node: int, packets: int) -> None:
        """An end sends a message on a PDC that it has reserved."""
        self.serial += 1
        self._send(node, "reserved_message", "rud", opaque_packets(MessageSpec(packets, Mode.RUD, "write", self.serial),
                                                                   PAYLOAD))  # fmt: skip

    @precondition(lambda self: self.can("return_data"))
    @step(node=_NODES, packets=st.sampled_from(SIZES[:4]))
    def return_data(self, node: int, packets: int) -> None:
        """An end, as the target of a PDC, sends data in the return direction."""
        self.serial += 1
        whole = packets * PAYLOAD
        self._send(node, "return_data", "rud", [
            build_response_data(self.serial, _JOB, PAYLOAD, whole, index * PAYLOAD, self.serial) + bytes(PAYLOAD)
            for index in range(packets)
        ])  # fmt: skip

    @precondition(lambda self: self.is_begun() and any(self.model.unanswered))
    @step(index=st.integers(0, 100))
    def respond(self, index: int) -> None:
        """SES answers a request."""
        waiting = [(node, data) for node in (IMPLEMENTATION, PEER) for data in self.model.unanswered[node]]
        node, data = waiting[index % len(waiting)]
        self.model.unanswered[node].remove(data)
        if node == IMPLEMENTATION:
            self.duties.responded(data, self.world.now)
        self.submit(node, {"op": "respond", "data": data})

    @precondition(ProtocolMachine.is_begun)
    @step(node=_NODES, op=st.sampled_from(("close", "ask_close")))
    def close(self, node: int, op: str) -> None:
        """An end closes its PDCs, or asks for the close of those of which it is the target."""
        if op in self.adapter().capabilities.work:
            self._close(node, {"op": op})

    def _close(self, node: int, work: dict[str, Any]) -> None:
        self.closes, self.model.in_order = True, False
        pdcs = self.model.to_close(node, work["op"] == "close", self.world.peer.state())
        self.submit(node, work)
        self.model.closing[node].update(pdcs)

    @precondition(ProtocolMachine.is_begun)
    @step(node=_NODES, op=st.sampled_from(CONTROLS), mode=st.sampled_from(MODES[:2]),
          value=st.integers(0, 0xFFFFFF))  # fmt: skip
    def control(self, node: int, op: str, mode: str, value: int) -> None:
        """An end sends a control packet."""
        capabilities = self.adapter().capabilities
        if self.credits and "credit" in op:
            value %= MOST_CREDIT  # who asks for 4 GB gets them, in a CREDIT for each 16 KiB
        if op in capabilities.work and mode in capabilities.modes:
            submit = self._close if "close" in op else self.submit  # findings of earlier versions have closes here
            submit(node, {"op": op, "mode": mode, "value": value})

    # What happens

    def on_event(self, node: int, event: Mapping[str, Any]) -> None:
        late = 0 if self.endless or node == PEER else self.world.late
        disturbed = self.world.disturbed + late
        self.model.on_event(node, event, disturbed, self.late, self.hasty and self.closes)

    def on_state(self, state: Mapping[str, Any] | None) -> None:
        self.model.on_state(state)

    def last_work(self) -> None:
        if self.late:
            self.world.pass_time(2 * PROMPT)  # so that what SES has answered is judged
            self.late = False
            self.duties.end()
            for node in (IMPLEMENTATION, PEER):
                self.model.unanswered[node].clear()
                try:
                    self.submit(node, {"op": "respond_all"})
                except WorkRefused as why:
                    raise WorldFailure(REFUSED, f"the implementation refuses respond_all: {why}") from why

    def is_done(self) -> bool:
        return self.model.is_done(self.world.peer.state())

    def check_end(self) -> None:
        self.model.end(self.world.peer.state())
