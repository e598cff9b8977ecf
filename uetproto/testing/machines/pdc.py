"""This machine drives packet delivery: PDCs in both roles, with messages whose SES headers are made here.

The implementation answers each request at once with the default response. See pds.md §18; UE 1.0.1 §3.5.
"""

from collections.abc import Mapping
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import precondition

from uetproto.check.uet.scripted_ses import opaque_packets
from uetproto.steps.uet import MessageSpec
from uetproto.testing.adapters.adapter import MODES, WorkRefused
from uetproto.testing.adapters.engines import GUARANTEED, PdcEngine
from uetproto.testing.machines.machine import ProtocolMachine, start, step
from uetproto.testing.machines.pdc_model import PdcModel, SentMessage
from uetproto.testing.machines.world import IMPLEMENTATION, PEER
from uetproto.wire.headers.uet_pds import Mode

PAYLOAD = 64
"""Bytes of payload of a full packet."""
ENDLESS = {"max_rto_retx_cnt": 15, "max_nack_retx_cnt": 31, "idle_time": 0}
"""Settings with which no PDC gives up or closes by itself."""
KNOBS: dict[str, tuple[Any, ...]] = {
    "mp_range": (128, 256, 1024), "default_mpr": (8, 1, 2), "ack_gen_trigger": (16384, 0, 2048),
    "enb_ack_per_pkt": (False, True), "ack_cc": ("when_gap", "always", "never"),
    "clear_cmd": ("timer", "immediate"), "sack_base": ("tracked", "trigger", "cack_plus_1"),
    "dup_without_retx": ("drop", "answer"), "ar_on_eom": (True, False), "ack_on_gap_close": (True, False),
    "window_base": ("clear", "cack"), "clear_at": ("packet", "message"), GUARANTEED: (False, True),
}  # fmt: skip
"""Settings that a run may draw, each with its values; all of them are legal (pds.md §17, §20)."""
CONTROLS = ("close", "ask_close", "noop", "probe", "negotiate", "ask_credit", "give_credit")
"""Operations that send control packets."""
SIZES = (1, 2, 1, 2, 3, 5, 20, 1, 2, 150)
"""Numbers of packets of a message."""


class PdcMachine(ProtocolMachine):
    """This machine drives an implementation of PDS, as the initiator and as the target of PDCs."""

    name = "pdc"
    peer = PdcEngine

    @start(
        seed=st.integers(0, 255),
        knobs=st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in KNOBS.items()}),
    )
    def begin(self, seed: int, knobs: dict[str, Any]) -> None:
        """Reset both ends."""
        self.reset_ends(seed, knobs, {})

    def reset_ends(self, seed: int, knobs: dict[str, Any], more: dict[str, Any]) -> None:
        """Make the model and the world; `more` is added to the configuration of both ends."""
        capabilities = self.adapter().capabilities
        self.serial = 0
        self.model = PdcModel(self.verdicts, capabilities.observable, capabilities.losses)
        self.endless = "max_rto_retx_cnt" in capabilities.knobs
        """Whether no PDC of the implementation gives up."""
        followed = self.knobs(ENDLESS | knobs)
        self.make_world({"seed": seed, "knobs": followed, **more}, ({}, {"knobs": followed | ENDLESS}))

    @precondition(ProtocolMachine.is_begun)
    @step(node=st.sampled_from((IMPLEMENTATION, PEER)), mode=st.sampled_from(MODES), packets=st.sampled_from(SIZES))
    def message(self, node: int, mode: str, packets: int) -> None:
        """An end sends a message."""
        modes = self.adapter().capabilities.modes
        mode = mode if mode in modes else modes[0]
        self.serial += 1
        spec = MessageSpec(1 if mode == "uud" else packets, Mode[mode.upper()], "send" if mode == "uud" else "write",
                           self.serial)  # fmt: skip
        message = SentMessage(self.serial, mode, tuple(each.hex() for each in opaque_packets(spec, PAYLOAD)))
        self.model.submit(node, message)
        try:
            self.world.submit(
                node, {"op": "message", "id": message.number, "mode": mode, "packets": [*message.packets]}
            )
        except WorkRefused:
            self.model.withdraw(node, message)
            raise

    @precondition(ProtocolMachine.is_begun)
    @step(node=st.sampled_from((IMPLEMENTATION, PEER)), op=st.sampled_from(CONTROLS), mode=st.sampled_from(MODES[:2]),
          value=st.integers(0, 0xFFFFFF))  # fmt: skip
    def control(self, node: int, op: str, mode: str, value: int) -> None:
        """An end closes its PDCs, asks for a close, or sends another control packet."""
        capabilities = self.adapter().capabilities
        if op in capabilities.work and mode in capabilities.modes:
            self.model.in_order = self.model.in_order and "close" not in op
            self.world.submit(node, {"op": op, "mode": mode, "value": value})

    def on_event(self, node: int, event: Mapping[str, Any]) -> None:
        late = 0 if self.endless or node == PEER else self.world.late
        self.model.on_event(node, event, self.world.disturbed + late)

    def on_state(self, state: Mapping[str, Any] | None) -> None:
        self.model.on_state(state)

    def is_done(self) -> bool:
        return self.model.is_done()

    def check_end(self) -> None:
        self.model.end()
