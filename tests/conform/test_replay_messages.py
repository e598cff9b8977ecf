# SPDX-License-Identifier: GPL-2.0-only
"""The messages of one side, read from captures: what scenarios did, and how it ended."""

import tomllib
from collections.abc import Iterable
from ipaddress import ip_address

import pytest

from tests.conform.test_replay_frames import read, sender, uet_side
from tests.support.effort import effort
from tests.support.paths import PCAPS
from uetproto.conform.replay.messages import CapturedMessage, MessageBegan, MessageReader
from uetproto.emulator.scenario.operations import NONE, TIMED_OUT, WORK
from uetproto.emulator.scenario.settings import Scenario, load
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_ses import OPCODE_PROFILES, Extension, ReturnCode

_MADE = {
    entry["file"].removesuffix(".pcapng"): entry["scenario"]
    for entry in tomllib.loads((PCAPS / "manifest.toml").read_text(encoding="utf-8"))["capture"]
    if entry.get("scenario", "").startswith("ses-") and not entry["settings"]
}
"""Scenario of each capture of operations."""
_NOT = {"ses-rendezvous-send", "ses-rendezvous-tsend"}
_MORE = {
    "ses-fail-bad-generation", "ses-fail-disabled-gen", "ses-fail-no-match",
    "ses-fail-uncor-trnsnt",
}  # fmt: skip
"""Scenarios in which an engine sends a message again as a new one."""


def messages(name: str) -> tuple[list[CapturedMessage], dict[str, int], list[str]]:
    version, address = sender(read(name))
    reader = MessageReader(name)
    began, order = [], []
    for event in reader.read(uet_side(read(name), version, address)):
        order.append(f"{'+' if isinstance(event, MessageBegan) else '-'}{event.message.number}")
        if isinstance(event, MessageBegan):
            began.append(event.message)
    return began, dict(reader.left_out), order


def work(scenario: Scenario) -> Iterable[tuple[str, int]]:
    """Return what the initiator of a scenario does: the kind of work, and its length."""
    for row in scenario.operations:
        if row.do in WORK and row.node == scenario.run.initiator:
            yield row.expect, row.fields.get("length", 0)


@pytest.mark.parametrize("name", sorted({*_MADE} - _NOT)[:: effort(3, 1, 1)])
def test_the_messages_of_a_capture_are_those_of_its_scenario(name: str) -> None:
    scenario = load(_MADE[name])
    began, left_out, order = messages(name)
    told = [(ReturnCode(one.return_code).name, one.length) for one in began if one.return_code is not None]
    rows = [*work(scenario)]
    codes = [code for code, _ in rows if code not in (NONE, TIMED_OUT)]
    assert [*left_out] == (["not whole in the capture"] if name == "ses-deferrable-tsend" else [])  # it is stopped
    assert (len(began) > len(rows)) is (name in _MORE)
    if name in _MORE:
        return
    assert sorted(code for code, _ in told) == sorted(codes)
    for message, (_, length) in zip(began, rows, strict=True):
        atomic = OPCODE_PROFILES[message.opcode].extension in (Extension.ATOMIC, Extension.SYNC_ATOMIC)
        assert atomic or message.length == length
    assert len(order) == len(began) + len(told)


def test_data_is_that_of_the_packets_in_any_order() -> None:
    """The messages of a lossy transfer, with retransmissions, are those of the input."""
    [message], left_out, _ = messages("gradient-lossy")
    assert not left_out
    source = load("gradient-lossy").run.input
    assert source is not None
    assert source.read_bytes().endswith(message.data)  # behind the header of the file
    assert len(message.data) == 12288


def test_messages_end_after_they_began_and_before_what_waited_for_them() -> None:
    began, _, order = messages("ses-fetching-atomic")
    assert order == [sign + str(one.number) for one in began for sign in "+-"]


def test_too_many_open_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uetproto.conform.replay.messages.MOST_BYTES", 1000)
    assert messages("ses-write")[1] == {"longer than 1,000 bytes": 1}
    monkeypatch.setattr("uetproto.conform.replay.messages.MOST_OPEN", 0)
    with pytest.raises(LocalError, match="at #1, 1 message of 8 bytes are open"):
        messages("ses-fetching-atomic")


def test_a_capture_that_ends_within_a_message_tells_it() -> None:
    side = [*uet_side(read("ses-write"), 4, int(ip_address("10.0.0.11")))]
    reader = MessageReader("cut")
    assert [*reader.read(side[:2])] == []
    assert reader.left_out == {"not whole in the capture": 1}
