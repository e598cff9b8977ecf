# SPDX-License-Identifier: GPL-2.0-only
"""Scenarios `ses-<operation>` and `ses-fail-<code>`: each does what its name says, and its capture shows it."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.support import paths
from tests.support.each import each
from tests.support.effort import effort
from uetproto import LocalError, Packet, decode
from uetproto.cli.main import cli
from uetproto.emulator.run.operation_schedule import drawn
from uetproto.emulator.run.play import run
from uetproto.emulator.run.result import RunResult
from uetproto.emulator.scenario.operations import KINDS
from uetproto.emulator.scenario.settings import SHIPPED, load, names
from uetproto.engine.contract import Mode
from uetproto.engine.ses.received import RxMessage
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.headers.uet_ses import Opcode, ResponseList, ResponseOpcode, ReturnCode

PCAPS = paths.PCAPS
SES = [name for name in names() if name.startswith("ses-")]
FAIL = {f"ses-fail-{code.name.lower().replace('_', '-')}": code for code in ReturnCode if 0x02 <= code <= 0x24}

_O, _L, _R = Opcode, ResponseList, ResponseOpcode

OPERATIONS: dict[str, tuple[tuple[str, dict[str, int]], ...]] = {
    "no-op": (("request_std", {"opcode": _O.NO_OP}),),
    "write": (("request_std", {"opcode": _O.WRITE, "hd": 0}),),
    "write-data": (("request_std", {"opcode": _O.WRITE, "hd": 1, "header_data": 0xCAFE}),),
    "read": (
        ("request_std", {"opcode": _O.READ}),
        ("response_data", {"opcode": _R.RESPONSE_W_DATA, "message_offset": 8192}),
    ),
    "read-small": (
        ("request_std", {"opcode": _O.READ}),
        ("response_data", {"payload_length": 16, "modified_length": 16}),
    ),
    "atomic": (
        ("request_std", {"opcode": _O.ATOMIC}),
        ("ext.atomic", {"atomic_opcode": 0x02, "atomic_datatype": 0x05}),
    ),
    "fetching-atomic": (("request_std", {"opcode": _O.FETCHING_ATOMIC}), ("response_data", {"payload_length": 8})),
    "compare-swap": (
        ("request_std", {"opcode": _O.FETCHING_ATOMIC, "request_length": 32}),
        ("ext.atomic_cas", {"compare_value": 40, "swap_value": 7}),
    ),
    "send": (("send_std", {"opcode": _O.SEND, "hd": 1}),),
    "send-held": (
        ("send_std", {"opcode": _O.SEND}),
        ("response", {"opcode": _R.NO_RESPONSE}),
        ("response", {"opcode": _R.RESPONSE, "list": _L.OVERFLOW, "modified_length": 10_000}),
    ),
    "rendezvous-send": (
        ("send_std", {"opcode": _O.RENDEZVOUS_SEND, "request_length": 12_288}),
        ("ext.rendezvous", {"eager_length": 4096}),
        ("request_std", {"opcode": _O.READ, "request_length": 8192}),
    ),
    "rendezvous-tsend": (
        ("send_std", {"opcode": _O.RENDEZVOUS_TSEND, "match_bits": 5}),
        ("ext.rendezvous", {"eager_length": 6000, "read_offset": 6000}),
        ("request_std", {"opcode": _O.READ, "request_length": 6288}),
    ),
    "datagram-send": (("send_std", {"opcode": _O.DATAGRAM_SEND, "message_id": 0}),),
    "deferrable-send": (("deferrable_std", {"opcode": _O.DEFERRABLE_SEND}),),
    "deferrable-tsend": (
        ("deferrable_std", {"opcode": _O.DEFERRABLE_TSEND, "target_restart_token": 0, "som": 1}),
        ("response", {"opcode": _R.RESPONSE, "list": _L.OVERFLOW, "modified_length": 0}),
        ("deferrable_std", {"opcode": _O.DEFERRABLE_TSEND, "eom": 1, "payload_length": 0}),
        ("rtr_std", {"opcode": _O.DEFERRABLE_RTR, "sender_token": 1}),
        ("deferrable_std", {"opcode": _O.DEFERRABLE_TSEND, "target_restart_token": 1, "som": 1}),
    ),
    "tagged-send": (("send_std", {"opcode": _O.TAGGED_SEND, "match_bits": 0x7AB}),),
    "tsend-atomic": (("send_std", {"opcode": _O.TSEND_ATOMIC, "match_bits": 8}),),
    "tsend-fetch-atomic": (
        ("send_std", {"opcode": _O.TSEND_FETCH_ATOMIC, "match_bits": 8}),
        ("response_data", {"payload_length": 4}),
    ),
    "msg-error": (("request_std", {"opcode": _O.MSG_ERROR, "som": 0, "eom": 1}),),
    "sync-write": (("request_std", {"opcode": _O.SYNC_WRITE}), ("ext.sync", {"count": 3}), ("ext.sync", {"count": 0})),
    "sync-atomic": (("request_std", {"opcode": _O.SYNC_ATOMIC}), ("ext.sync", {"count": 3})),
    "medium": (
        ("request_medium", {"opcode": _O.WRITE, "hd": 0}),
        ("request_medium", {"opcode": _O.WRITE, "hd": 1}),
        ("request_medium", {"opcode": _O.FETCHING_ATOMIC}),
        ("request_medium", {"opcode": _O.READ}),
        ("send_medium", {"opcode": _O.TAGGED_SEND}),
        ("send_medium", {"opcode": _O.SEND, "hd": 1}),
        ("response_data_small", {"payload_length": 1000}),
    ),
    "small": (
        ("request_small", {"opcode": _O.WRITE, "resource_index": 5}),
        ("request_small", {"opcode": _O.ATOMIC}),
        ("request_small", {"opcode": _O.READ}),
        ("response_data_small", {"payload_length": 4}),
    ),
    "rudi-write": (("request_std", {"opcode": _O.WRITE}),),
    "rudi-read": (("request_std", {"opcode": _O.READ}), ("response_data", {"message_offset": 8192})),
}
"""What the capture of each must show: SES forms (a first packet's are those of a later one) and values of fields."""


def layers(path: Path) -> list[tuple[str, dict[str, int]]]:
    """The SES headers of a capture, without `ses.` and `.som`."""
    with open_capture(path) as reader:
        packets: list[Packet] = [decode(record.data) for record in reader]
    assert not any(packet.error for packet in packets)
    return [
        (layer.form.removeprefix("ses.").removesuffix(".som").removesuffix(".hd"), dict(layer.values))
        for packet in packets
        for layer in packet.layers
        if layer.form.startswith("ses.")
    ]


def shows(found: list[tuple[str, dict[str, int]]], form: str, values: dict[str, int]) -> bool:
    return any(name == form and values.items() <= there.items() for name, there in found)


def test_each_operation_and_each_return_code_has_one() -> None:
    assert set(SES) == {f"ses-{name}" for name in OPERATIONS} | set(FAIL)


@pytest.mark.parametrize("name", SES)
def test_scenario(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status, outcomes, invariants, the bytes of the golden capture, and in it what the name says."""
    path = tmp_path / "c.pcapng"
    assert cli.status(["run", name, "--check", "--json", "-o", str(path)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["match"], result["failure"], result["findings"]) == (True, None, [])
    assert result["sha256_source"] == result["sha256_target"]
    assert result["checked"] == result["packets"]
    assert result["operations"]
    assert all(one["match"] and one["return_code"] == one["expect"] for one in result["operations"])
    assert path.read_bytes() == (PCAPS / f"{name}.pcapng").read_bytes()
    found = layers(path)
    if name in FAIL:
        assert any(values.get("return_code") == FAIL[name] for _, values in found)
    else:
        for form, values in OPERATIONS[name.removeprefix("ses-")]:
            assert shows(found, form, values), (form, values)


@each("name", SES)
def test_ladder(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.status(["ladder", "--width", "250", str(PCAPS / f"{name}.pcapng")]) == 0
    out = capsys.readouterr().out
    if name in FAIL:
        assert FAIL[name].name in out
    else:
        assert Opcode(OPERATIONS[name.removeprefix("ses-")][0][1]["opcode"]).name in out


@pytest.mark.parametrize("name", sorted(set(SES) - {"ses-datagram-send", "ses-fail-cancelled"}))
def test_a_bad_network_changes_nothing(name: str) -> None:
    """Frames are lost, doubled and overtaken: the same outcomes, the same memory.

    But a datagram may be lost, and of a message that comes too late the region is gone before its first packet.
    """
    happened = 0
    for seed in range(effort(2, 4, 4)):
        faults = ("faults.drop=0.1", "faults.duplicate=0.1", "faults.reorder=0.1", f"seed={seed}")
        result = run(load(name, faults), check=True)
        assert result.ok, result
        happened += sum(result.happened.values())
    assert happened


def test_four_are_retried() -> None:
    """Of class now or back (ses.md §9.5): the operation ends well all the same."""
    for name, code in FAIL.items():
        retried = code in (
            ReturnCode.BAD_GENERATION, ReturnCode.DISABLED_GEN, ReturnCode.NO_MATCH, ReturnCode.UNCOR_TRNSNT,
        )  # fmt: skip
        outcomes = {one["return_code"] for one in run(load(name)).operations if one["do"] != "receive"}
        assert ((code.name in outcomes), (outcomes == {"OK"})) == (not retried, retried), name


# Rows that are played otherwise ---------------------------------------------------------------------------------------

HEAD = """[run]
job_id = 101
initiator_id = 0
[nodes.a]
address = "10.0.0.1"
[nodes.b]
address = "10.0.0.2"
"""


def scenario(tmp_path: Path, rows: str, head: str = HEAD) -> str:
    """One row a line, keys apart by semicolons; a line that begins with `[` is itself."""
    lines = [line.strip() for line in rows.strip().splitlines()]
    text = [line if line.startswith("[") else "[[operation]]\n" + line.replace("; ", "\n") for line in lines]
    path = tmp_path / "mine.toml"
    path.write_text(head + "\n".join(text) + "\n", encoding="utf-8")
    return str(path)


def play(tmp_path: Path, rows: str, *settings: str, head: str = HEAD) -> RunResult:
    return run(load(scenario(tmp_path, rows, head), settings), check=True)


def outcomes(result: RunResult) -> list[tuple[str, str]]:
    return [(one["do"], one["return_code"]) for one in result.operations]


def test_another_outcome_than_expected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    text = (SHIPPED / "ses-fail-bad-mkey.toml").read_text(encoding="utf-8")
    path.write_text(text.replace('expect = "BAD_MKEY"', 'expect = "BAD_ADDR"', 1), encoding="utf-8")
    assert cli.status(["run", str(path)]) == 1
    out = capsys.readouterr().out
    assert "2 write 1,000 bytes, rank0: BAD_MKEY, BAD_ADDR expected\n" in out
    assert "failed: operation 2 (write) ended with BAD_MKEY, BAD_ADDR was expected" in out


@pytest.mark.parametrize("name", ["ses-write", "ses-send", "ses-send-held", "ses-deferrable-tsend", "ses-write-data"])
def test_a_wrong_byte_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write = RxMessage.write

    def wrong(self: RxMessage, offset: int, payload: Any) -> None:
        write(self, offset, bytes([payload[0] ^ 1]) + bytes(payload[1:]))

    monkeypatch.setattr(RxMessage, "write", wrong)
    result = run(load(name))
    assert not result.match
    assert not result.ok


def test_a_byte_beside_the_message_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    write = RxMessage.write

    def more(self: RxMessage, offset: int, payload: Any) -> None:
        write(self, offset, payload)
        assert self.memory is not None
        self.memory.write(16_383, b"?")

    monkeypatch.setattr(RxMessage, "write", more)
    result = run(load("ses-write"))
    assert all(one["match"] for one in result.operations)
    assert not result.match
    assert result.sha256_source != result.sha256_target


def test_a_read_of_what_was_written(tmp_path: Path) -> None:
    rows = """do = "region"; length = 9000
        do = "write"; length = 9000
        do = "read"; length = 9000; after = "previous"; node = "a" """
    result = play(tmp_path, rows)
    assert result.ok, result
    assert outcomes(result) == [("write", "OK"), ("read", "OK")]
    assert result.bytes == 18_000
    first, second = result.operations
    assert first["time_ps"] < second["time_ps"]


def test_the_target_may_begin(tmp_path: Path) -> None:
    rows = """do = "region"; node = "a"; length = 64
        do = "write"; node = "b"; length = 64"""
    result = play(tmp_path, rows)
    assert result.ok, result
    assert result.operations[0]["node"] == "b"


def test_at_and_after(tmp_path: Path) -> None:
    rows = """do = "region"; length = 64
        do = "write"; length = 64; at = "30 us"
        do = "nop"; at = "40 us"; after = "all" """
    first, second = play(tmp_path, rows).operations
    assert first["time_ps"] >= 30_000_000
    assert second["time_ps"] >= 44_000_000


def test_nobody_comes_for_a_deferred_send(tmp_path: Path) -> None:
    rows = 'do = "send"; length = 9000; mode = "rud"; kind = "deferrable"; expect = "TIMED_OUT"'
    result = play(tmp_path, rows)
    assert outcomes(result) == [("send", "TIMED_OUT")]
    assert result.virtual_time_ps > 5 * 10**12
    assert result.ok, result


def test_a_receive_that_stays(tmp_path: Path) -> None:
    result = play(tmp_path, 'do = "receive"; length = 64\ndo = "nop"')
    assert result.failure == "operation 0 (receive) ended with NONE, OK was expected"
    assert play(tmp_path, 'do = "receive"; length = 64; expect = "NONE"\ndo = "nop"').ok


HELD = 'do = "send"; length = {}'


@pytest.mark.parametrize(
    ("rows", "settings"),
    [
        (HELD.format(64), ()),
        (HELD.format(20_000), ()),
        (HELD.format(64) + '; tag = 7\ndo = "receive"; length = 64; tag = 8; expect = "NONE"', ()),
        (HELD.format(20_000) + '; kind = "rendezvous"', ("ses.eager_length=4096",)),
        (HELD.format(64) + '\ndo = "nop"; after = "all"; expect = "NONE"', ()),
        (HELD.format(64), ("mode=rud", "faults.drop=0.2", "faults.duplicate=0.2")),
    ],
)
def test_a_send_that_no_receive_takes(tmp_path: Path, rows: str, settings: tuple[str, ...]) -> None:
    """The run ends where nothing but waiting is left, and says why."""
    result = play(tmp_path, rows, *settings)
    assert result.failure == "operation 0 (send): no receive takes it"
    assert outcomes(result)[0] == ("send", "NONE")
    assert result.match
    assert result.virtual_time_ps < 10**12, "less than a second"


def test_several_sends_that_no_receive_takes(tmp_path: Path) -> None:
    rows = """do = "receive"; length = 64; tag = 2
        do = "send"; length = 64; tag = 1
        do = "send"; length = 64; tag = 2
        do = "send"; length = 64; tag = 3"""
    result = play(tmp_path, rows)
    told = "operation 1 (send): no receive takes it; operation 3 (send): no receive takes it"
    assert result.failure is not None
    assert result.failure.startswith(told), "the second has its receive, but on ROD its answer waits for the first"
    assert play(tmp_path, rows, "mode=rud").failure == told


def test_a_send_may_be_meant_to_stay(tmp_path: Path) -> None:
    result = play(tmp_path, HELD.format(64) + '; expect = "NONE"')
    assert result.ok, result
    assert outcomes(result) == [("send", "NONE")]


@pytest.mark.parametrize("late", ["20 ms", "3 s"])
def test_a_receive_that_comes_late(tmp_path: Path, late: str) -> None:
    """What is still to come is waited for, however long."""
    result = play(tmp_path, HELD.format(64) + f'\ndo = "receive"; length = 64; at = "{late}"')
    assert result.ok, result
    assert outcomes(result) == [("send", "OK"), ("receive", "OK")]


def test_as_many_bytes_as_a_row_may_ask_for() -> None:
    """A generator gives less than 2^31 bits at once."""
    assert len(drawn(random.Random(1), 1 << 28)) == 1 << 28
    assert drawn(random.Random(1), (1 << 20) + 5) == random.Random(1).getrandbits(8 * ((1 << 20) + 5)).to_bytes(
        (1 << 20) + 5, "little"
    )
    assert drawn(random.Random(1), 0) == b""


def test_lengths_with_a_unit(tmp_path: Path) -> None:
    result = play(tmp_path, 'do = "region"; length = "4 KiB"\ndo = "write"; length = "3 KiB"')
    assert (result.ok, result.bytes) == (True, 3072)


def test_rows_are_changed_by_hand(tmp_path: Path) -> None:
    rows = 'do = "region"; length = 64\ndo = "write"; length = 64'
    assert play(tmp_path, rows, "operation.1.length=5").bytes == 5
    for setting, message in (
        ("operation.1.length=-1", "settings operation.1.length: -1 is not legal; legal: bytes, or a text"),
        ("operation.2.length=5", "settings operation.2.length: no such row: 2; legal: a number, 0 … 1"),
        ("operation.x.length=5", "settings operation.x.length: no such row: x; legal: a number, 0 … 1"),
        ("operation.1=5", "settings operation.1: 1 is a row; legal: a key of it, as in operation.1.key"),
        ("operation.1.length.x=5", "settings operation.1.length.x: length is not a table"),
        ("mode=uud", "settings run.mode: 'uud' does not carry write (operation.1); legal: rod, rud, rudi"),
    ):
        with pytest.raises(LocalError) as caught:
            load(scenario(tmp_path, rows), [setting])
        assert str(caught.value).startswith(message)


def test_names_with_wildcards(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.status(["run", "ses-wri*", "--json"]) == 0
    found = [json.loads(line)["scenario"] for line in capsys.readouterr().out.splitlines()]
    assert found == ["ses-write", "ses-write-data"]
    assert cli.status(["run", "sex-*"]) == 2
    told = "sex-*: no shipped scenario has such a name; legal: those of uetproto scenario list"
    assert told in capsys.readouterr().err
    assert cli.status(["run", "ses-*", "-o", "x.pcapng"]) == 2


def test_the_limit_of_retries(tmp_path: Path) -> None:
    rows = 'do = "send"; length = 64; mode = "rud"; expect = "NO_MATCH"'
    result = play(tmp_path, rows, "ses.unexpected_policy=refuse", "ses.message_retry_limit=2")
    assert result.ok, result


def test_a_truncated_send(tmp_path: Path) -> None:
    result = play(tmp_path, 'do = "receive"; length = 5000\ndo = "send"; length = 9000')
    assert result.ok, result


@pytest.mark.parametrize("mode", ["rod", "rud"])
def test_messages_that_only_completion_data_tells_apart(tmp_path: Path, mode: str) -> None:
    """Two writes have the same data and length; two empty sends have different data, and either may arrive first."""
    rows = """do = "region"; key = 1; length = 8
        do = "region"; key = 2; length = 8
        do = "write"; key = 1; length = 5; completion_data = 7
        do = "write"; key = 2; length = 5; completion_data = 7
        do = "receive"; length = 8
        do = "receive"; length = 8
        do = "send"; length = 0; completion_data = 1
        do = "send"; length = 0; completion_data = 2"""
    assert play(tmp_path, rows, f"mode={mode}", "faults.reorder=[0, 2, 4]").ok


def test_several_messages_in_one_buffer(tmp_path: Path) -> None:
    rows = """do = "receive"; length = 100; least = 50
        do = "send"; length = 30
        do = "send"; length = 40"""
    result = play(tmp_path, rows)
    assert result.ok, result


@pytest.mark.parametrize("datatype", ["INT8", "UINT128", "FP16", "BF16", "DOUBLE", "DOUBLE_COMPLEX"])
def test_atomics_of_every_kind(tmp_path: Path, datatype: str) -> None:
    number = "3" if "INT" in datatype else "1.5"
    rows = f"""do = "region"; length = 64; datatype = "{datatype}"; value = {number}
        do = "atomic"; opcode = "PROD"; datatype = "{datatype}"; operand = {number}; fetch = true"""
    result = play(tmp_path, rows)
    assert result.ok, result


def test_a_datagram_that_nobody_takes(tmp_path: Path) -> None:
    """The initiator cannot know; the model does."""
    result = play(tmp_path, 'do = "send"; length = 64; mode = "uud"')
    assert outcomes(result) == [("send", "OK")]
    assert not result.match


def test_what_the_engine_refuses_names_the_row(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"mine.toml:8: operation.0: kind: DEFERRABLE is legal on RUD"):
        play(tmp_path, 'do = "send"; length = 64; kind = "deferrable"')


# Targets that refuse --------------------------------------------------------------------------------------------------

FAULT = '[[faults.target]]\nmatch = {{ {} }}\nanswer = "AT_PERM"\n'


@pytest.mark.parametrize(
    ("match", "codes"),
    [
        ("", ["AT_PERM", "AT_PERM", "AT_PERM"]),
        ('opcode = "WRITE"', ["AT_PERM", "AT_PERM", "OK"]),
        ('opcode = "WRITE", packet = 1', ["OK", "AT_PERM", "OK"]),
        ("packet = [0, 2]", ["AT_PERM", "OK", "AT_PERM"]),
        ("key = 2", ["OK", "AT_PERM", "OK"]),
        ("job_id = 102", ["OK", "OK", "OK"]),
    ],
)
def test_which_requests_are_refused(tmp_path: Path, match: str, codes: list[str]) -> None:
    rows = """do = "region"; length = 64
        do = "region"; length = 64; key = 2
        do = "write"; length = 64
        do = "write"; length = 64; key = 2; after = "previous"
        do = "read"; length = 64; after = "previous" """
    result = play(tmp_path, rows, head=HEAD + FAULT.format(match))
    assert [code for _, code in outcomes(result)] == codes
    assert result.match


def test_a_transfer_is_refused_too(tmp_path: Path) -> None:
    text = (SHIPPED / "gradient.toml").read_text(encoding="utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(text + "\n" + FAULT.format("message_offset = 4096"), encoding="utf-8")
    result = run(load(str(path), [f"input={SHIPPED / 'gradient.npy'}"]), check=True)
    assert result.failure == "message 1: AT_PERM"
    assert not result.findings


# Faults of the file ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("length = 5", f"8: operation.0.do: is missing; legal: {', '.join(list(KINDS)[:3])}, …"),
        ('do = "put"', "9: operation.0.do: 'put'; legal: write, read"),
        ('do = "write"', "8: operation.0: write needs length; legal: bytes, or a text such as "),
        ('do = "nop"; size = 5', "10: operation.0.size: unknown key; legal: do, node"),
        ('do = "nop"; length = 5', "10: operation.0.length: does not go with nop; legal: do, node"),
        ('do = "nop"; node = "c"', "10: operation.0.node: no such node: 'c'; legal: a, b"),
        ('do = "nop"; expect = "GOOD"', "10: operation.0.expect: 'GOOD' is not legal; legal: OK, BAD_GENERATION"),
        ('do = "nop"; after = "me"', "10: operation.0.after: 'me' is not legal; legal: previous, all"),
        ('do = "nop"; at = "2 us"\ndo = "nop"; at = "1 us"', "13: operation.1.at: 1000000 ps is before the row above"),
        ('do = "write"; length = 5; sync = 7', "11: operation.0.sync: 7 is not legal; legal: [group, total]"),
        ('do = "send"; length = 5; kind = "late"', "11: operation.0.kind: 'late' is not legal; legal: plain, rend"),
        ('do = "region"; length = 5; value = 7', "8: operation.0: has one of value and datatype"),
        ('do = "atomic"; opcode = "ADD"; datatype = "INT8"', "10: operation.0.opcode: 'ADD' is not legal; legal: MIN"),
        (
            'do = "atomic"; opcode = "SUM"; datatype = "INT8"; operand = 300',
            "12: operation.0.operand: 300 is no element of INT8",
        ),
        (
            f'do = "atomic"; opcode = "SUM"; datatype = "DOUBLE"; operand = {"9" * 400}',
            "12: operation.0.operand: 99999999999999999999… (400 characters) is no element of DOUBLE; legal: a number,",
        ),
        (
            f'do = "region"; length = 8; datatype = "BF16"; value = {"9" * 400}',
            "12: operation.0.value: 99999999999999999999… (400 characters) is no element of BF16; legal: a number,",
        ),
        (
            'do = "region"; length = 8; datatype = "INT16"; value = 40000',
            "INT16; legal: a whole number, -2^15 … 2^15 - 1",
        ),
        ('do = "region"; length = 8; datatype = "UINT8"; value = -1', "UINT8; legal: a whole number, 0 … 2^8 - 1"),
        (
            'do = "atomic"; opcode = "SUM"; datatype = "LONG_DOUBLE"; operand = 1',
            "12: operation.0.operand: 1 is no element of LONG_DOUBLE; legal: none, LONG_DOUBLE is not supported",
        ),
        (
            'do = "region"; length = 10; datatype = "UINT64"; value = 3',
            "10: operation.0.length: 10 bytes are no whole elements; legal: a multiple of 8, the size of UINT64",
        ),
        (
            'do = "receive"; length = 10; least = 99',
            "11: operation.0.least: 99 is more than the buffer has; legal: 0 … 10",
        ),
        (
            'do = "write"; length = 5; mode = "uud"',
            "11: operation.0.mode: 'uud' does not carry write; legal: rod, rud, rudi",
        ),
        ('do = "nop"\n[operation.x]', "8: operation.0.x: unknown key; legal: do, node"),
        ('[[step]]\nadvance = 5\ndo = "nop"', "operation: does not go with rows [[step]]"),
        ('[[faults.target]]\ndo = "nop"', "8: faults.target.0: answer is missing; legal: BAD_GENERATION"),
        ('[[faults.target]]\n[x]\ndo = "nop"', "9: x: unknown section"),
    ],
)
def test_refusals(tmp_path: Path, rows: str, message: str) -> None:
    with pytest.raises(LocalError) as caught:
        load(scenario(tmp_path, rows))
    assert message in str(caught.value)


def test_no_rows(tmp_path: Path) -> None:
    for value, message in (("[]", "has no row"), ("1", r"is a value; legal: rows \[\[operation\]\]")):
        with pytest.raises(LocalError, match=f"mine.toml:1: operation: {message}"):
            load(scenario(tmp_path, "[pds]", f"operation = {value}\n" + HEAD))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ('answer = "OK"', "9: faults.target.0.answer: 'OK' is not legal; legal: BAD_GENERATION"),
        ('answer = "UNCOR"\nnode = "c"', "10: faults.target.0.node: no such end: 'c'; legal: a, b"),
        ('answer = "UNCOR"\nmatch = { opcode = "PUT" }', "10: faults.target.0.match.opcode: 'PUT' is not legal"),
        (
            'answer = "UNCOR"\nmatch = { size = 5 }',
            "10: faults.target.0.match.size: unknown key; legal: opcode, packet",
        ),
        ('answer = "UNCOR"\nmatch = { packet = -1 }', "10: faults.target.0.match.packet: -1 is not legal"),
        ('answer = "UNCOR"\nmatch = 5', "10: faults.target.0.match: is a value"),
    ],
)
def test_refusals_of_target_faults(tmp_path: Path, fault: str, message: str) -> None:
    with pytest.raises(LocalError) as caught:
        load(scenario(tmp_path, 'do = "nop"', HEAD + f"[[faults.target]]\n{fault}\n"))
    assert message in str(caught.value)


def test_the_keys_of_run() -> None:
    """Operations have no input, and any mode."""
    with pytest.raises(LocalError, match=r"run.input: does not go with rows"):
        load("ses-write", ["input=x"])
    assert load("ses-rudi-write").run.mode is Mode.RUDI
