"""What happens next, by chance: the seeded loop of the fuzzer.

Every episode draws its own settings and its own mixture of what befalls packets, so that rare things come together.
Only `random()` and `getrandbits()` of the generator are used.
"""

from bisect import bisect
from collections.abc import Callable, Sequence
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, TypeVar

from uetproto.check.uet.steps import ALL, Message, Step
from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import MICROSECOND, MILLISECOND, SECOND, Mode, Rng
from uetproto.engine.pds.pdc_pool import Preset
from uetproto.engine.pds.psn_window import MPR_UNIT
from uetproto.engine.pds.retransmit import NACK_INFINITE
from uetproto.engine.pds.states import Role

if TYPE_CHECKING:
    from uetproto.check.uet.machine import World

_T = TypeVar("_T")
_new = tuple.__new__  # half the time of a call of the class

PROFILES: dict[str, tuple[Mode, ...]] = {
    "rud": (Mode.RUD,),
    "rod": (Mode.ROD,),
    "rudi": (Mode.RUDI,),
    "uud": (Mode.UUD,),
    "mixed": tuple(Mode),
}
"""Modes of the messages."""

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
}
"""Values that are worth a try; each knob keeps its default in most episodes."""
_CHANGED = 0.2
"""Share of the knobs that an episode changes."""

_STARTS = (1, 0x7FFFFFF0, 0xFFFFFF80, 0xFFFFFFF8, 0xFFFFFFFF)
_FULL = 256
"""Packets on the wire from which on none is added."""
_CROWD, _CROWDED = 40, 0.9
"""From so many packets on most steps deliver one."""
_NEAR = 8
"""Packets that may overtake each other, mostly."""


class Chooser:
    """Draws the settings of one episode (`knobs`, `presets`), then its steps."""

    __slots__ = (
        "_actions", "_bounds", "_endless", "_in_order", "_long", "_message_id", "_modes", "_near", "_packets",
        "_random", "_rests", "_rng", "_wide", "knobs", "presets",
    )  # fmt: skip

    def __init__(self, profile: str, rng: Rng) -> None:
        self._rng = rng
        self._random = rng.random
        self._modes = PROFILES[profile]
        self._message_id = 0
        self._endless = rng.random() < 0.5
        self._rests = rng.random() < 0.8
        """PDCIDs have a quarantine."""
        self._wide = rng.random() < 0.1
        """The source assumes a wider window than there is."""
        self.knobs = self._settings(), self._settings()
        if self._endless:
            self._narrow()
        self.presets = (self._preset(), self._preset())
        self._packets = self._one((1, 3, 40, 300))
        """Packets of a message, at most."""
        if self._wide:
            self._packets = 300
        self._long = self._one((MILLISECOND, 10 * MILLISECOND, 100 * MILLISECOND))
        self._near = self._one((1, _NEAR, _FULL))
        self._in_order = 0.3 + 0.6 * rng.random()
        weights = {
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
        self._actions: list[Callable[[Any], Step | None]] = list(weights)
        bounds = list(accumulate(weights.values()))
        self._bounds = [bound / bounds[-1] for bound in bounds]

    # Settings

    def _one(self, values: Sequence[_T]) -> _T:
        return values[int(self._random() * len(values))]

    def _maybe(self, weight: float) -> float:
        """A weight that every third episode does without."""
        return weight * self._random() if self._random() < 0.67 else 0.0

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
            del knobs["nack_retx_time"]  # a refusal that lasts would be answered by packets without end
        if self._wide:
            knobs |= {"default_mpr": 255, "mp_range": 128}
        if not self._rests:
            knobs |= {"pdcid_quarantine": 0}
        if knobs.get("secure_start") == "expected" and not self._rests:
            del knobs["secure_start"]  # Start_PSNs far from each other are what makes PDCIDs without rest safe
        if knobs.get("secure_start", "off") != "off":
            knobs.pop("limit_psn_range", None)  # it is not to be had without the limit
        return knobs

    def _narrow(self) -> None:
        """Where all must be answered no source thinks a window wider than it is: what it sent beyond it is behind, and
        dropped in silence, when the ACKs of a whole window are lost (pds.md §8.1)."""
        for mine, peer in (self.knobs, self.knobs[::-1]):
            widest = peer.get("mp_range", _DEFAULT.mp_range) // MPR_UNIT
            mine["default_mpr"] = min(mine.get("default_mpr", _DEFAULT.default_mpr), widest)

    def _preset(self) -> Preset:
        return Preset(start_psn=self._one(_STARTS)) if self._random() < 0.5 else Preset()

    # Steps

    def choose(self, world: "World") -> Step:
        """The next step, possible at this moment but for a few local wishes."""
        flight = world.flight
        if flight and self._random() < (self._in_order if len(flight) < _CROWD else _CROWDED):
            return _new(Step, ("deliver", 0, next(iter(flight)), 0, "ok", None, b""))
        while True:
            step = self._actions[bisect(self._bounds, self._random())](world)
            if step is not None:
                return step

    def _number(self, world: "World") -> int | None:
        """A packet on the wire."""
        flight = world.flight
        if not flight:
            return None
        return next(islice(flight, int(self._random() * min(len(flight), self._near)), None))

    def _deliver(self, world: "World") -> Step | None:
        number = self._number(world)
        return None if number is None else Step("deliver", 0, number)

    def _deliver_all(self, world: "World") -> Step | None:
        return Step("deliver", 0, ALL) if world.flight else None

    def _drop(self, world: "World") -> Step | None:
        number = self._number(world)
        return None if number is None else Step("drop", 0, number)

    def _dup(self, world: "World") -> Step | None:
        number = self._number(world)
        return None if number is None or len(world.flight) > _FULL else Step("dup", 0, number)

    def _dup_at_once(self, world: "World") -> Step | None:
        """A copy of what is delivered next comes right behind it."""
        flight = world.flight
        return Step("dup", 0, next(iter(flight))) if len(flight) == 1 else None

    def _stale(self, world: "World") -> Step | None:
        """A copy of something that left long ago: a SYN packet, a packet of a closed PDC."""
        back = int(1 + self._random() ** 3 * 1000)
        number = world.sent - back
        return Step("dup", 0, number) if world.wire.recent(number) is not None and len(world.flight) < _FULL else None

    def _trim(self, world: "World") -> Step | None:
        number = self._number(world)
        return None if number is None else Step("trim", 0, number, self._rng.getrandbits(1))

    def _mark(self, world: "World") -> Step | None:
        number = self._number(world)
        return None if number is None else Step("mark", 0, number)

    def _submit(self, world: "World") -> Step | None:
        if len(world.flight) > _CROWD:
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
                answer = self._one(_REFUSALS)
        self._message_id = self._message_id % 0xFFFE + 1
        reserved, context = self._random() < 0.02, int(self._random() < 0.03)
        node = int(self._random() < 0.25)
        return Step("submit", node, message=Message(packets, mode, op, self._message_id, answer, reserved, context))

    def _advance(self, world: "World") -> Step | None:
        chance = self._random()
        if chance < 0.6:
            return Step("advance", 0, int(self._random() * 20 * MICROSECOND))
        if world.flight and chance < 0.9:
            return Step("advance", 0, int(self._random() * 2 * MILLISECOND))
        return Step("advance", 0, int(self._random() * self._long))

    def _wait(self, world: "World") -> Step | None:
        """So long that PDCIDs may be used again."""
        return Step("advance", 0, 100 * MILLISECOND) if not world.flight else None

    def _respond(self, world: "World") -> Step | None:
        node = self._rng.getrandbits(1)
        waiting = world.ses[node].waiting
        if not waiting:
            node = 1 - node
            waiting = world.ses[node].waiting
            if not waiting:
                return None
        _, number = next(islice(waiting, int(self._random() * min(len(waiting), self._near)), None))
        chance = self._random()
        answer = "ok" if chance < 0.6 else "gtd" if chance < 0.9 else "no_response"
        return Step("respond", node, number, 0, answer)

    def _answer_ahead(self, world: "World") -> Step | None:
        """How a packet that is still to leave is to be answered: return data, too."""
        node = self._rng.getrandbits(1)
        pdcs = world.watches[1 - node].pds.pdcs
        if not pdcs:
            return None
        pdc = next(islice(pdcs.values(), int(self._random() * len(pdcs)), None))
        return Step("respond", node, pdc.tx.next, 0, self._one(("gtd", "gtd", "later", "no_response")))

    def _close(self, world: "World") -> Step | None:
        node = self._node_with(world, Role.INITIATOR)
        return None if node is None else Step("close", node)

    def _ask_close(self, world: "World") -> Step | None:
        node = self._node_with(world, Role.TARGET)
        return None if node is None else Step("ask_close", node)

    def _control(self, world: "World") -> Step | None:
        node = self._rng.getrandbits(1)
        if not world.watches[node].pds.pdcs and Mode.RUD not in self._modes:
            return None
        return Step(self._one(_CONTROLS), node, self._rng.getrandbits(16))

    def _node_with(self, world: "World", role: Role) -> int | None:
        first = self._rng.getrandbits(1)
        for node in (first, 1 - first):
            if any(pdc.role is role for pdc in world.watches[node].pds.pdcs.values()):
                return node
        return None

    def _restart(self, world: "World") -> Step | None:
        return Step("restart", self._rng.getrandbits(1))

    def _lose(self, world: "World") -> Step | None:
        node = self._rng.getrandbits(1)
        for ledger in world.watches[node].ledgers.values():
            if ledger.gtd:
                return Step("lose", node, next(iter(ledger.gtd)))
        return None

    def _allow(self, world: "World") -> Step | None:
        node = self._rng.getrandbits(1)
        return Step("allow", node, ALL if self._random() < 0.5 else int(self._random() * 8))


_REFUSALS = ("no_pkt_buffer", "no_gtd_del_avail", "no_ses_msg_avail", "no_resource", "rcvr_infer_loss")
_CONTROLS = ("noop", "negotiate", "probe", "ask_credit", "give_credit")
