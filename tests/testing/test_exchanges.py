# SPDX-License-Identifier: GPL-2.0-only
"""Messages, exchanges, captures and scenarios of `uetproto.testing`: legal, with one fault, small when a test fails."""

import io
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis.errors import InvalidArgument

from tests.support.audit.frames import audited
from tests.support.effort import examples
from tests.support.testing.shrunk import shrunk
from uetproto import LocalError, decode
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.emulator.run.play import run
from uetproto.emulator.scenario.settings import load_text
from uetproto.testing import PlayedExchange, Spoilt, captures, exchanges, messages, scenarios
from uetproto.testing.strategies.exchanges import played
from uetproto.wire.headers.uet_ses import Opcode


def rules(frames: Iterable[bytes]) -> set[str]:
    return {finding.rule.id for finding in audited(frames).findings}


def rules_of_file(data: bytes) -> set[str]:
    return {finding.rule.id for finding in audit([io.BytesIO(data)], Options()).findings}


def data_of(exchange: PlayedExchange) -> list[bytes]:
    return [frame.data for frame in exchange.frames]


# Legal ----------------------------------------------------------------------------------------------------------------


@given(scenarios())
@examples(60)
def test_a_scenario_runs_and_every_frame_and_effect_is_right(text: str) -> None:
    result = run(load_text(text), check=True)
    assert result.ok, (result.failure, result.findings)


@given(exchanges())
@examples(60)
def test_an_exchange_is_legal(exchange: PlayedExchange) -> None:
    assert rules(data_of(exchange)) == set()
    times = [frame.time_ns for frame in exchange.frames]
    assert times == sorted(times)
    assert len(exchange.requests) + len(exchange.replies) == len(exchange.frames)
    assert exchange.frames[0].sender == "initiator"


@given(exchanges(faults=False))
@examples(40)
def test_an_exchange_without_faults_is_complete(exchange: PlayedExchange) -> None:
    assert audited(data_of(exchange), complete=True, ordered=True).findings == []


@given(messages())
@examples(60)
def test_a_message_is_legal_and_whole(message: list[bytes]) -> None:
    assert rules(message) == set()
    found = [decode(data) for data in message]
    flags = [next(values for form, values, _ in packet.layers if "eom" in values) for packet in found]
    assert [values["som"] for values in flags] == [1] + [0] * (len(flags) - 1)
    assert [values["eom"] for values in flags] == [0] * (len(flags) - 1) + [1]


@given(captures())
@examples(40)
def test_a_capture_is_legal(data: bytes) -> None:
    assert rules_of_file(data) == set()


# Spoilt ---------------------------------------------------------------------------------------------------------------


@given(exchanges(spoilt=True))
@examples(60)
def test_a_spoilt_exchange_breaks_the_rule_that_it_names(spoilt: Spoilt[PlayedExchange]) -> None:
    right, wrong = data_of(played(spoilt.value.scenario)), data_of(spoilt.value)
    assert sum(one != other for one, other in zip(right, wrong, strict=True)) == 1
    assert spoilt.rule in rules(wrong), spoilt.what


@given(messages(spoilt=True))
@examples(40)
def test_a_spoilt_message_breaks_the_rule_that_it_names(spoilt: Spoilt[list[bytes]]) -> None:
    assert spoilt.rule in rules(spoilt.value), spoilt.what


@given(captures(spoilt=True))
@examples(40)
def test_a_spoilt_capture_breaks_the_rule_that_it_names(spoilt: Spoilt[bytes]) -> None:
    assert spoilt.rule in rules_of_file(spoilt.value), spoilt.what


@given(scenarios(spoilt=True))
@examples(100)
def test_a_spoilt_scenario_is_refused_with_key_and_line(spoilt: Spoilt[str]) -> None:
    with pytest.raises(LocalError) as caught:
        load_text(spoilt.value)
    assert caught.value.name == spoilt.rule
    assert caught.value.place is not None
    assert 0 < caught.value.place.line <= len(spoilt.value.splitlines())


# Restricted -----------------------------------------------------------------------------------------------------------


@given(messages(mode="rudi", opcode="READ", encapsulation="native", ip_version=6, crc=True, mtu=2048))
@examples(12)
def test_arguments_restrict_what_is_drawn(message: list[bytes]) -> None:
    for data in message:
        packet = decode(data)
        assert {"ipv6", "entropy", "pds.rudi_req"} <= {layer.form for layer in packet.layers}
        assert packet.trailer is not None
        values = packet.layers[-1].values
        assert (values["opcode"], values.get("message_offset", 0) % 2048) == (Opcode.READ, 0)


@pytest.mark.parametrize(
    ("make", "legal"),
    [
        (
            lambda: scenarios(mode="uud", opcode="READ"),
            "mode='uud' is not legal with opcode='READ'; legal: rud, rod, rudi",
        ),
        (lambda: messages(opcode="MSG_ERROR"), "opcode='MSG_ERROR' is not legal"),
        (lambda: exchanges(operations=0), "operations=0 is not legal; legal: 1 … 16"),
        (lambda: captures(format="erf"), "format='erf' is not legal; legal: pcap, pcapng"),
        (lambda: captures(exchanges=99), "exchanges=99 is not legal; legal: 1 … 16"),
        (lambda: exchanges(mode="rdu"), "mode='rdu' is not legal (did you mean rud?); legal: rud, rod"),
    ],
)
def test_what_is_not_legal_is_refused_with_the_legal_values(make: Callable[[], object], legal: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        make()
    assert legal in str(caught.value)


# Shrunk ---------------------------------------------------------------------------------------------------------------


SMALLEST = """\
[run]
mode = "rud"
seed = 0

[fabric]
encapsulation = "udp"
crc = "on"

[nodes.a]
address = "10.0.0.1"

[nodes.b]
address = "10.0.0.2"

[ses]
payload_mtu = 1024

[preset.a]
start_psn = 0

[[operation]]
do = "region"
key = 1
length = 5120

[[operation]]
do = "read"
key = 1
length = 0
"""


def test_a_failing_exchange_shrinks_to_one_operation() -> None:
    """Read data takes a READ, and nothing else: it is of 0 bytes, and no fault and no other operation is left."""
    found = shrunk(exchanges(), lambda exchange: any("ses.response_data" in decode(data) for data in exchange.replies))
    assert found.scenario == SMALLEST
    assert repr(found) == f"<Exchange of {len(found.frames)} frames of the scenario\n{SMALLEST}>"


def test_a_failing_message_shrinks_to_the_byte() -> None:
    message = shrunk(messages(opcode="SEND"), lambda message: len(message) > 2)
    assert [len(decode(data).payload) for data in message] == [1024, 1024, 1]
