# SPDX-License-Identifier: GPL-2.0-only
"""Our engine and the naive model of pds.md must deliver the same messages for the same inputs.

Every case runs four times, with either kind of sender and either kind of receiver, over a network that treats the
packets in the same adversarial way. What arrives does not depend on who sends and who receives.
"""

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.effort import effort, examples
from tests.support.peer.formats import Ctl
from tests.support.peer.model import Answer, Habits
from tests.support.peer.world import (
    FATES,
    US,
    Item,
    Network,
    OurReceiver,
    OurSender,
    Receiver,
    Sender,
    SimpleReceiver,
    SimpleSender,
    Target,
)
from uetproto.engine import Mode, PdsConfig
from uetproto.engine.config import PERSONALITIES

PAIRS = list(product(("ours", "naive"), repeat=2))
"""Kinds of sender and receiver."""
ENDLESS: dict[str, Any] = {"max_rto_retx_cnt": 15, "max_nack_retx_cnt": 31, "idle_time": 0, "close_req_time": 10**13}
"""No budget ends a PDC: what may arrive in the end arrives (pds.md §18, liveness)."""


@dataclass(frozen=True)
class Case:
    """What is sent, what the network does, and who closes how."""

    mode: Mode
    messages: list[list[Item]]
    gap: int = 0
    """Microseconds between two messages."""
    start: int = 100_000
    fates: list[str] = field(default_factory=list)
    closing_fates: list[str] = field(default_factory=list)
    opened: Ctl | None = None
    """NOOP or NEGOTIATION opens the PDC."""
    asked: bool = False
    """The target asks for the close."""
    sender: dict[str, Any] = field(default_factory=dict)
    receiver: dict[str, Any] = field(default_factory=dict)
    """Settings of `PdsConfig`."""
    habits: Habits = field(default_factory=Habits)

    @property
    def items(self) -> list[Item]:
        return [item for message in self.messages for item in message]


@dataclass
class Outcome:
    """What both SES saw, and whether it came to an end."""

    delivered: list[bytes]
    responses: list[tuple[object, Answer | None]]
    data: list[bytes]
    """Read data, in the return direction, and the responses to it."""
    data_responses: list[tuple[object, Answer | None]]
    faults: list[str]
    answered: bool
    cleared: bool
    closed: bool


def run(case: Case, ours_sends: bool, ours_receives: bool) -> Outcome:
    """One run: all is sent, answered and cleared, then the PDCs are closed."""
    network = Network(list(case.fates))
    target = Target(case.items, network.later)
    sender: Sender
    receiver: Receiver
    if ours_sends:
        sender = OurSender(PdsConfig(**{**case.sender, **ENDLESS}), case.start)
    else:
        sender = SimpleSender(case.habits, case.start)
    if ours_receives:
        receiver = OurReceiver(PdsConfig(**{**case.receiver, **ENDLESS}), target, lambda: network.now)
    else:
        receiver = SimpleReceiver(case.habits, target)
    network.nodes = {"A": sender, "B": receiver}
    for number, message in enumerate(case.messages):
        network.at(number * case.gap * US, lambda items=message: sender.send(case.mode, items, network.now))  # type: ignore[misc]

    if case.opened is not None:
        sender.open(case.mode, case.opened, 0)

    reads = sum(item.kind == "read" for item in case.items)

    def all_answered() -> bool:
        if case.mode is Mode.UUD:
            return not network.due
        return len(sender.responses) >= len(case.items) and len(sender.data) == len(receiver.responses) == reads

    answered = network.run(all_answered)
    cleared = answered and network.run(lambda: receiver.cleared)
    network.fates = list(case.closing_fates)
    if case.asked:
        receiver.ask_close(network.now)
    else:
        sender.close(network.now)
    closed = cleared and network.run(lambda: sender.closed and receiver.closed)
    return Outcome(
        target.delivered, sender.responses, sender.data, receiver.responses, sender.faults + receiver.faults,
        answered, cleared, closed,
    )  # fmt: skip


def check(case: Case) -> None:
    """Each pair delivers every message once, unchanged, ROD in order, and every answer reaches the sender."""
    sent = [item.payload for item in case.items]
    for pair in PAIRS:
        outcome = run(case, *(kind == "ours" for kind in pair))
        end = f"{pair[0]} -> {pair[1]}"
        assert outcome.faults == [], end
        assert (outcome.answered, outcome.cleared, outcome.closed) == (True, True, True), end
        if case.mode is Mode.ROD:
            assert outcome.delivered == sent, end
        else:
            assert Counter(outcome.delivered) == Counter(sent), end
        reads = [b"data of " + payload for payload in outcome.delivered if payload.endswith(b"read")]
        assert Counter(outcome.data) == Counter(reads) == Counter(handle for handle, _ in outcome.data_responses), end
        assert case.mode is Mode.RUD or outcome.data == reads, end
        assert Counter(handle for handle, _ in outcome.responses) == Counter(sent), end
        answers = dict(outcome.responses)
        for item in case.items:
            got = answers[item.payload]
            if item.answer.guaranteed:
                assert got is not None, end
                assert (got.ses, got.next_hdr) == (item.answer.ses, item.answer.next_hdr), end
            else:
                assert got is None or got.ses[0] == 0, end  # DEFAULT_RESPONSE, from SES or made up


# Cases ---------------------------------------------------------------------------------------------------------------

KINDS = ("ok", "ok", "ok", "error", "data", "late ok", "late error", "read")
MODES = (Mode.RUD, Mode.ROD)
KNOBS: dict[str, tuple[Any, ...]] = {
    "ack_cc": ("when_gap", "always", "never"),
    "ack_ccx": (False, True),
    "ar_on_eom": (True, False),
    "enb_ack_per_pkt": (False, True),
    "ack_gen_trigger": (16384, 0, 3072),
    "sack_base": ("tracked", "trigger", "cack_plus_1"),
    "window_base": ("clear", "cack"),
    "clear_cmd": ("timer", "immediate"),
    "clear_source": ("explicit", "cack"),
    "clear_at": ("packet", "message"),
    "clear_on_retransmission": ("current", "as_first_sent"),
    "mp_range": (1024, 128, 256, 32640),
    "default_mpr": (8, 1, 255),
    "rod_gap": ("discard", "reorder"),
    "rod_recovery": ("go_back_n", "selective"),
    "dup_without_retx": ("drop", "answer"),
    "closing_ack": ("at_close_psn", "before_close_psn"),
    "ack_copies_retx": (True, False),
    "ack_req_ar": (True, False),
    "inferred_loss": ("off", "sack", "probe"),
    "pdcid_quarantine": ("MSL", 0),
    "entropy_values": (256, 1),
    "ack_on_gap_close": (True, False),
}
"""Values that a peer must get along with; the default first."""
HABITS = st.builds(
    Habits,
    ack_type=st.sampled_from((8, 7, 9)),
    mpr=st.sampled_from((8, 1, 2, 255)),
    sack_below=st.sampled_from((0, 1, 20, 63)),
    isrod_zero=st.booleans(),
    ar=st.booleans(),
)
STARTS = st.sampled_from((1, 100_000, 0xFFFFFFFE, 0xFFFFFFF0, 0x7FFFFFFC)) | st.integers(0, 2**32 - 1)
KNOB_VALUES = st.fixed_dictionaries({}, optional={name: st.sampled_from(KNOBS[name]) for name in KNOBS})
PERSONALITY = st.sampled_from(("default", "refprov"))


def items(kinds: list[list[tuple[str, int]]]) -> list[list[Item]]:
    """Items of several messages, told apart by their number."""
    numbers = iter(range(1, 1_000_000))
    return [
        [Item(next(numbers).to_bytes(4, "big") + kind.encode(), kind, refusals) for kind, refusals in message]
        for message in kinds
    ]


MESSAGES = st.lists(
    st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from((0, 0, 0, 1))), min_size=1, max_size=12),
    min_size=1,
    max_size=5,
).map(items)


def not_refused(messages: list[list[Item]], sender: dict[str, Any]) -> list[list[Item]]:
    """A selective source needs a target that keeps what follows a refusal: with another one the RTO must repeat it all,
    each time twice as late."""
    if sender.get("rod_recovery") != "selective":
        return messages
    return [[replace(item, refusals=0) for item in message] for message in messages]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    mode = draw(st.sampled_from(MODES))
    habits = draw(HABITS)
    settings = []
    for _ in range(2):
        personality = PERSONALITIES[draw(PERSONALITY)]["pds"]
        isrod = {"cp_isrod": "zero"} if habits.isrod_zero else {}
        settings.append({**personality, **draw(KNOB_VALUES), **isrod, "close_drain": "drain"})
    if any(chosen.get("cp_isrod") == "zero" for chosen in settings):  # a strict target refuses that (observed.md)
        habits = replace(habits, isrod_zero=True)
        settings = [{**chosen, "cp_mode_check": False} for chosen in settings]
    opened = draw(st.sampled_from((None, Ctl.NOOP, Ctl.NEGOTIATION)))
    if mode is Mode.ROD and habits.isrod_zero:
        opened = None  # it would open a RUD PDC
    messages = not_refused(draw(MESSAGES), settings[0])
    if any(item.kind == "read" for message in messages for item in message):
        habits = replace(habits, hint=False)  # nobody keeps the PDC open for the data
    return Case(
        mode,
        messages,
        draw(st.sampled_from((0, 30, 3_000))),
        draw(STARTS),
        draw(st.lists(st.sampled_from(sorted(FATES)), max_size=60)),
        draw(st.lists(st.sampled_from(sorted(FATES)), max_size=5)),
        opened,
        draw(st.booleans()),
        settings[0],
        settings[1],
        habits,
    )


@given(cases())
@examples(60)
def test_the_same_is_delivered(case: Case) -> None:
    """pds.md §18 items 1–3, 6–9, 49, 50, with any knobs on either side."""
    check(case)


@pytest.mark.parametrize("seed", range(effort(2, 12, 200)))
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_long_messages_over_a_bad_network(mode: Mode, seed: int) -> None:
    """More packets than MP_RANGE, a third of them badly treated, PSNs that wrap (pds.md §2.1, §7.1)."""
    rng = random.Random(seed)
    kinds = [[(rng.choice(KINDS), rng.choice((0,) * 20 + (1,))) for _ in range(rng.randint(1, 200))] for _ in range(3)]
    fates = [rng.choice(list(FATES)) if rng.random() < 0.3 else "pass" for _ in range(600)]
    knobs = [{name: rng.choice(values) for name, values in KNOBS.items() if rng.random() < 0.2} for _ in range(2)]
    habits = Habits(ack_type=rng.choice((7, 8, 9)), mpr=rng.choice((1, 8)), sack_below=rng.choice((0, 30)))
    start = 0xFFFFFFFF - rng.randrange(300)
    messages = not_refused(items(kinds), knobs[0])
    check(Case(mode, messages, 0, start, fates, [], None, seed % 2 == 1, knobs[0], knobs[1], habits))


# Without a PDC (pds.md §15) ------------------------------------------------------------------------------------------


@st.composite
def cases_without_pdc(draw: st.DrawFn) -> Case:
    kinds = st.tuples(st.sampled_from(("ok", "error")), st.sampled_from((0, 0, 1)))
    messages = items(draw(st.lists(st.lists(kinds, min_size=1, max_size=8), min_size=1, max_size=4)))
    fates = draw(st.lists(st.sampled_from(sorted(FATES)), max_size=40))
    return Case(Mode.RUDI, messages, draw(st.sampled_from((0, 30))), draw(STARTS), fates)


@given(cases_without_pdc())
@examples(40)
def test_rudi_arrives_at_least_once(case: Case) -> None:
    """pds.md §18 items 6, 7, 45: one response each, that of SES, whatever was lost or came twice."""
    for pair in PAIRS:
        outcome = run(case, *(kind == "ours" for kind in pair))
        end = f"{pair[0]} -> {pair[1]}"
        assert (outcome.answered, outcome.faults) == (True, []), end
        assert set(outcome.delivered) == {item.payload for item in case.items}, end
        assert sorted(outcome.responses, key=str) == sorted(
            ((item.payload, item.answer._replace(guaranteed=False)) for item in case.items), key=str
        ), end


@given(cases_without_pdc())
@examples(40)
def test_uud_arrives_as_often_as_the_network_says(case: Case) -> None:
    """pds.md §15, §18 item 46: a delivery for each copy, nothing comes back."""
    case = replace(case, mode=Mode.UUD, messages=[[replace(item, refusals=0)] for item in case.items])
    fates = case.fates + ["pass"] * len(case.items)
    expected = Counter({item.payload: len(FATES[fate]) for item, fate in zip(case.items, fates, strict=False)})
    for pair in PAIRS:
        outcome = run(case, *(kind == "ours" for kind in pair))
        assert Counter(outcome.delivered) == +expected, pair
        assert outcome.faults == [], pair
