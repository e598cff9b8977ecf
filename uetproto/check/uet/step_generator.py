# SPDX-License-Identifier: GPL-2.0-only
"""This module draws the settings and the random steps of an episode of UET."""

from itertools import islice
from typing import Any

from uetproto.check.step_generator import CROWD, FULL, NEAR, StepGenerator
from uetproto.check.uet.simulator import UetSimulator
from uetproto.check.wire import ALL
from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import MICROSECOND, MILLISECOND, SECOND, Mode, Rng
from uetproto.engine.pds.pdc_pool import Preset
from uetproto.engine.pds.psn_window import MPR_UNIT
from uetproto.engine.pds.retransmit import NACK_INFINITE
from uetproto.engine.pds.states import Role
from uetproto.steps.uet import REFUSALS, MessageSpec, UetStep

_new = tuple.__new__  # half the time of a call of the class

PROFILES: dict[str, tuple[Mode, ...]] = {
    "rud": (Mode.RUD,),
    "rod": (Mode.ROD,),
    "rudi": (Mode.RUDI,),
    "uud": (Mode.UUD,),
    "mixed": tuple(Mode),
}
"""Maps the name of a simulated machine to the delivery modes of the messages that it sends."""

_YES_NO = (True, False)
_DEFAULT = PdsConfig()
_KNOBS: dict[str, tuple[Any, ...]] = {
    "default_mpr": (1, 2, 8, 255),
    "mp_range": (128, 256, 1024, 32640),
    "ack_on_ecn": _YES_NO,
    "enb_ack_per_pkt": _YES_NO,
    "ack_gen_trigger": (0, 2048, 4096, 16384),
    "ack_gen_min_pkt_add": (0, 1, 1024, 2048),
    "rto_init_time": (100 * MICROSECOND, MILLISECOND, 3 * MILLISECOND),
    "nack_retx_time": (0, 10 * MICROSECOND, MILLISECOND, 5 * MILLISECOND),
    "pds_clear_time": (500 * MICROSECOND, MILLISECOND, 20 * MILLISECOND),
    "new_pdc_time": (MILLISECOND, 5 * MILLISECOND, SECOND),
    "msl": (50 * MILLISECOND, 2 * SECOND),
    "max_pdcs": (1, 2, 3, 1000),
    "close_thresh": (0, 1, 4),
    "max_bitmaps": (1, 2, 65535),
    "max_packet_buffers": (1, 4, 1 << 20),
    "max_gtd_del": (1, 3, 65535),
    "secure_start": ("off", "off", "expected", "random"),
    "dup_without_retx": ("drop", "answer"),
    "rod_gap": ("discard", "reorder"),
    "ar_on_eom": _YES_NO,
    "sack_base": ("tracked", "trigger", "cack_plus_1"),
    "clear_cmd": ("timer", "immediate"),
    "close_drain": ("drain", "error"),
    "store_ack_read_data": _YES_NO,
    "ack_cc": ("when_gap", "always", "never"),
    "ack_ccx": _YES_NO,
    "clear_source": ("explicit", "cack"),
    "window_base": ("clear", "cack"),
    "closing_ack": ("at_close_psn", "before_close_psn"),
    "expected_psn_after_close": ("last_plus_1", "start_plus_1"),
    "closing_ack_epsn": _YES_NO,
    "new_start_spdcid": ("own", "zero"),
    "ack_req_ar": _YES_NO,
    "ack_copies_retx": _YES_NO,
    "rudi_marks_retx": _YES_NO,
    "clear_on_retransmission": ("current", "as_first_sent"),
    "clear_at": ("packet", "message"),
    "rod_recovery": ("go_back_n", "selective"),
    "inferred_loss": ("off", "off", "sack", "probe"),
    "inferred_loss_packets": (1, 5),
    "limit_psn_range": _YES_NO,
    "entropy_values": (1, 256),
    "ack_on_gap_close": _YES_NO,
}
"""Values of knobs that an episode may draw; each knob keeps its default in most episodes."""
_CHANGED = 0.2
"""Share of the knobs that an episode changes."""

_STARTS = (1, 0x7FFFFFF0, 0xFFFFFF80, 0xFFFFFFF8, 0xFFFFFFFF)


class UetStepGenerator(StepGenerator[UetSimulator, UetStep]):
    """This class draws the settings of one episode (`knobs`, `presets`), and then its steps."""

    __slots__ = ("_endless", "_long", "_message_id", "_modes", "_packets", "_quarantine", "_wide", "knobs", "presets")

    def __init__(self, profile: str, rng: Rng) -> None:
        super().__init__(rng)
        self._modes = PROFILES[profile]
        self._message_id = 0
        self._endless = rng.random() < 0.5
        self._quarantine = rng.random() < 0.8
        """Whether a PDCID is quarantined after its PDC has closed."""
        self._wide = rng.random() < 0.1
        """Whether the source assumes a wider window than the destination has."""
        self.knobs = self._settings(), self._settings()
        if self._endless:
            self._narrow()
        self.presets = (self._preset(), self._preset())
        self._packets = self._one((1, 3, 40, 300))
        """Most packets of a message."""
        if self._wide:
            self._packets = 300
        self._long = self._one((MILLISECOND, 10 * MILLISECOND, 100 * MILLISECOND))
        self._near = self._one((1, NEAR, FULL))
        self._in_order = 0.3 + 0.6 * rng.random()
        self._set_weights(
            {
                self._deliver: 6.0,
                self._submit: 3.0,
                self._advance: 2.0,
                self._respond: 2.0,
                self._drop: self._maybe(4.0),
                self._dup: self._maybe(2.0),
                self._dup_at_once: self._maybe(1.0),
                self._stale: self._maybe(1.0),
                self._trim: self._maybe(2.0),
                self._mark: self._maybe(1.0),
                self._wait: self._maybe(0.5),
                self._close: self._maybe(0.5),
                self._ask_close: self._maybe(0.3),
                self._control: self._maybe(1.0),
                self._answer_ahead: self._maybe(0.5),
                self._deliver_all: 0.1,
                self._restart: 0.05 if rng.random() < 0.03 else 0.0,
                self._lose: 0.2 if rng.random() < 0.03 else 0.0,
                self._allow: self._maybe(0.2),
            }
        )

    # Settings

    def _settings(self) -> dict[str, Any]:
        knobs = {name: self._one(values) for name, values in _KNOBS.items() if self._random() < _CHANGED}
        if self._endless:
            knobs |= {"max_rto_retx_cnt": 15, "max_nack_retx_cnt": 31, "pend_timeout": 600 * SECOND, "idle_time": 0,
                      "close_req_time": 10 * SECOND, "max_pdcs": 1000, "max_bitmaps": 65535,
                      "max_gtd_del": 65535, "max_packet_buffers": 1 << 20}  # fmt: skip
        else:
            knobs |= {"max_rto_retx_cnt": self._one((0, 1, 3, 5)), "max_nack_retx_cnt": self._one((0, 2, 5, 31))}
            knobs |= {"close_req_time": self._one((MILLISECOND, SECOND)), "idle_time": self._one((0, 60 * SECOND))}
            knobs |= {"reserved_pdcs": self._one((0, 1, 16))}
        if knobs["max_nack_retx_cnt"] == NACK_INFINITE and knobs.get("nack_retx_time", MILLISECOND) < MILLISECOND:
            del knobs["nack_retx_time"]  # a lasting refusal would cause endless retransmissions
        if self._wide:
            knobs |= {"default_mpr": 255, "mp_range": 128}
        if not self._quarantine:
            knobs |= {"pdcid_quarantine": 0}
        if knobs.get("secure_start") == "expected" and not self._quarantine:
            del knobs["secure_start"]  # only distant Start_PSNs make PDCIDs without quarantine safe
        if knobs.get("secure_start", "off") != "off":
            knobs.pop("limit_psn_range", None)  # secure start needs the limit
        return knobs

    def _narrow(self) -> None:
        """Let no source assume a wider window than its destination has, in an episode where all must be answered.

        Packets beyond the window are dropped silently when the ACKs of a whole window are lost (pds.md §8.1).
        """
        for mine, peer in (self.knobs, self.knobs[::-1]):
            widest = peer.get("mp_range", _DEFAULT.mp_range) // MPR_UNIT
            mine["default_mpr"] = min(mine.get("default_mpr", _DEFAULT.default_mpr), widest)

    def _preset(self) -> Preset:
        return Preset(start_psn=self._one(_STARTS)) if self._random() < 0.5 else Preset()

    # Steps

    def _to_number(self, action: str, number: int) -> UetStep:
        return _new(UetStep, (action, 0, number, 0, "ok", None, b""))

    def _dup(self, view: UetSimulator) -> UetStep | None:
        step = self._to_packet(view, "dup")
        return None if len(view.flight) > FULL else step

    def _dup_at_once(self, view: UetSimulator) -> UetStep | None:
        """Copy the only packet on the wire, so that the copy arrives right behind it."""
        flight = view.flight
        return UetStep("dup", 0, next(iter(flight))) if len(flight) == 1 else None

    def _trim(self, view: UetSimulator) -> UetStep | None:
        number = self._number(view)
        return None if number is None else UetStep("trim", 0, number, self._rng.getrandbits(1))

    def _submit(self, view: UetSimulator) -> UetStep | None:
        if len(view.flight) > CROWD:
            return None
        mode = self._one(self._modes)
        chance = self._random()
        packets = 1 + int(self._random() * self._packets)
        op, answer = "send", "ok"
        if mode is Mode.UUD:
            packets = 1
        elif mode is Mode.RUDI or chance < 0.3:
            op = "write" if chance < 0.15 else "read"
        if mode is not Mode.UUD:
            chance = self._random()
            if op == "read":
                answer = "return" if chance < 0.5 else "data"
            if chance < 0.15:
                answer = "gtd"
            elif chance < 0.25:
                answer = "later" if chance < 0.2 else "no_response"
            elif chance < 0.3:
                answer = self._one(REFUSALS)
        self._message_id = self._message_id % 0xFFFE + 1
        reserved, context = self._random() < 0.02, int(self._random() < 0.03)
        node = int(self._random() < 0.25)
        return UetStep(
            "submit", node, message=MessageSpec(packets, mode, op, self._message_id, answer, reserved, context)
        )

    def _advance(self, view: UetSimulator) -> UetStep | None:
        chance = self._random()
        if chance < 0.6:
            return UetStep("advance", 0, int(self._random() * 20 * MICROSECOND))
        if view.flight and chance < 0.9:
            return UetStep("advance", 0, int(self._random() * 2 * MILLISECOND))
        return UetStep("advance", 0, int(self._random() * self._long))

    def _wait(self, view: UetSimulator) -> UetStep | None:
        """Let so much time pass that PDCIDs may be used again."""
        return UetStep("advance", 0, 100 * MILLISECOND) if not view.flight else None

    def _respond(self, view: UetSimulator) -> UetStep | None:
        node = self._rng.getrandbits(1)
        waiting = view.ses[node].waiting
        if not waiting:
            node = 1 - node
            waiting = view.ses[node].waiting
            if not waiting:
                return None
        _, number = next(islice(waiting, int(self._random() * min(len(waiting), self._near)), None))
        chance = self._random()
        answer = "ok" if chance < 0.6 else "gtd" if chance < 0.9 else "no_response"
        return UetStep("respond", node, number, 0, answer)

    def _answer_ahead(self, view: UetSimulator) -> UetStep | None:
        """Set how a packet that has not left yet is to be answered; it may be return data."""
        node = self._rng.getrandbits(1)
        pdcs = view.monitors[1 - node].pds.pdcs
        if not pdcs:
            return None
        pdc = next(islice(pdcs.values(), int(self._random() * len(pdcs)), None))
        return UetStep("respond", node, pdc.tx.next, 0, self._one(("gtd", "gtd", "later", "no_response")))

    def _close(self, view: UetSimulator) -> UetStep | None:
        return self._to_node_with(view, Role.INITIATOR, "close")

    def _ask_close(self, view: UetSimulator) -> UetStep | None:
        return self._to_node_with(view, Role.TARGET, "ask_close")

    def _control(self, view: UetSimulator) -> UetStep | None:
        node = self._rng.getrandbits(1)
        if not view.monitors[node].pds.pdcs and Mode.RUD not in self._modes:
            return None
        return UetStep(self._one(_CONTROLS), node, self._rng.getrandbits(16))

    def _to_node_with(self, view: UetSimulator, role: Role, action: str) -> UetStep | None:
        first = self._rng.getrandbits(1)
        for node in (first, 1 - first):
            if any(pdc.role is role for pdc in view.monitors[node].pds.pdcs.values()):
                return UetStep(action, node)
        return None

    def _restart(self, view: UetSimulator) -> UetStep | None:
        return UetStep("restart", self._rng.getrandbits(1))

    def _lose(self, view: UetSimulator) -> UetStep | None:
        node = self._rng.getrandbits(1)
        for shadow in view.monitors[node].shadows.values():
            if shadow.gtd:
                return UetStep("lose", node, next(iter(shadow.gtd)))
        return None

    def _allow(self, view: UetSimulator) -> UetStep | None:
        node = self._rng.getrandbits(1)
        return UetStep("allow", node, ALL if self._random() < 0.5 else int(self._random() * 8))


_CONTROLS = ("noop", "negotiate", "probe", "ask_credit", "give_credit")
