# SPDX-License-Identifier: GPL-2.0-only
"""Rows `[[operation]]` over RoCE: how they are played, what is waited for, and which are refused."""

import random
from pathlib import Path

import pytest

from tests.support.effort import effort
from uetproto import LocalError
from uetproto.emulator.run.play import run
from uetproto.emulator.run.result import RunResult
from uetproto.emulator.scenario.roce_operations import KINDS
from uetproto.emulator.scenario.settings import load

HEAD = """[run]
transport = "{}"
base = 0x1000
[nodes.a]
address = "10.0.0.1"
[nodes.b]
address = "10.0.0.2"
"""
REGION = 'do = "region"; length = 8192; key = 1\n'


def scenario(tmp_path: Path, rows: str, transport: str = "rc", more: str = "") -> str:
    """One row a line, keys apart by semicolons."""
    lines = [line.strip() for line in rows.strip().splitlines()]
    text = (
        HEAD.format(transport) + more + "".join("[[operation]]\n" + line.replace("; ", "\n") + "\n" for line in lines)
    )
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def play(tmp_path: Path, rows: str, *settings: str, transport: str = "rc", more: str = "") -> RunResult:
    return run(load(scenario(tmp_path, rows, transport, more), settings), check=True)


def outcomes(result: RunResult) -> list[tuple[str, str]]:
    return [(one["do"], one["return_code"]) for one in result.operations]


# Order and time -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["rc", "uc"])
def test_traffic_patterns(tmp_path: Path, transport: str) -> None:
    """Each pattern over queue pairs of its own; UC counts a write as done when it has left."""
    head = f"[run]\ntransport = '{transport}'\nhosts = 4\n[fabric]\nrate = '100 Gb/s'\n"
    rows = "".join(f"[[operation]]\ndo = '{do}'\nlength = 9000\nafter = 'all'\n" for do in ("incast", "permutation"))
    path = tmp_path / "mine.toml"
    path.write_text(head + rows, encoding="utf-8")
    scenario = load(str(path))
    assert list(scenario.qps) == ["h0.h2", "h2.h0", "h0.h3", "h3.h0", "h1.h3", "h3.h1"]
    result = run(scenario, check=True)
    assert result.ok, (result.failure, result.findings)
    writes = [(one.node, one.pattern) for one in scenario.operations if one.do == "write"]
    assert writes == [("h2", "incast"), ("h3", "incast"), *((f"h{host}", "permutation") for host in range(4))]
    assert result.packets >= 3 * len(writes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("transport = 'ud'", "run.transport: 'ud' carries no write of a traffic pattern; legal: rc, uc"),
        ("transport = 'rc'\n[qp.h0]", "qp: does not go with rows of traffic patterns"),
        ("transport = 'rc'\n[[operation]]\ndo = 'outcast'\nnode = 'h0'\nlength = 1", "does not go with outcast"),
        ("transport = 'rc'\n[[operation]]\ndo = 'outcast'", "outcast needs length"),
    ],
)
def test_traffic_patterns_that_cannot_be(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"[run]\nhosts = 4\n{text}\n[[operation]]\ndo = 'incast'\nlength = 9000\n", encoding="utf-8")
    with pytest.raises(LocalError, match=message):
        load(str(path))


def test_two_writes_to_one_place(tmp_path: Path) -> None:
    """The second one is there before the first one is acknowledged."""
    for transport in ("rc", "uc"):
        rows = REGION + 'do = "write"; key = 1; length = 5000\n' * 2
        result = play(tmp_path, rows, transport=transport)
        assert result.ok, result


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    rows = REGION + 'do = "write"; key = 1; length = 8000\ndo = "read"; key = 1; length = 8000; after = "previous"'
    result = play(tmp_path, rows)
    assert result.ok, result
    assert result.bytes == 16_000
    first, second = result.operations
    assert first["time_ps"] < second["time_ps"]


def test_the_target_may_begin(tmp_path: Path) -> None:
    rows = 'do = "region"; node = "a"; length = 64; key = 1\ndo = "write"; node = "b"; length = 64; key = 1'
    result = play(tmp_path, rows)
    assert result.ok, result
    assert result.operations[0]["node"] == "b"


def test_at_and_after(tmp_path: Path) -> None:
    rows = (
        REGION
        + """do = "write"; length = 64; key = 1; at = "30 us"
        do = "write"; length = 64; key = 1; at = "31 us"; after = "all" """
    )
    first, second = play(tmp_path, rows).operations
    assert first["time_ps"] >= 34_000_000
    assert second["time_ps"] >= first["time_ps"] + 4_000_000


def test_nobody_waits_for_a_completion_that_does_not_come(tmp_path: Path) -> None:
    rows = (
        REGION
        + """do = "write"; length = 64; key = 1; signaled = false
        do = "read"; length = 64; key = 1; after = "all" """
    )
    result = play(tmp_path, rows)
    assert result.ok, result
    assert outcomes(result) == [("write", "NONE"), ("read", "SUCCESS")]
    told = play(tmp_path, rows.replace("signaled = false", 'signaled = false; expect = "SUCCESS"')).failure
    assert told == "; ".join(
        f"operation {number} ended with NONE, SUCCESS was expected" for number in ("1 (write)", "2 (read)")
    )


SEND = 'do = "send"; length = {}'


@pytest.mark.parametrize(
    ("rows", "sends"),
    [
        (SEND.format(64), ["NONE"]),
        (SEND.format(64) + '; expect = "NONE"', ["NONE"]),
        (SEND.format(20_000), ["NONE"]),
        (f'do = "receive"; length = 64\n{SEND.format(64)}\n{SEND.format(64)}', ["SUCCESS", "NONE"]),
        (f'{SEND.format(64)}\ndo = "receive"; length = 64; after = "all"; expect = "NONE"', ["NONE"]),
    ],
)
def test_a_receiver_that_is_never_ready(tmp_path: Path, rows: str, sends: list[str]) -> None:
    """rnr_retry 7 is endless (roce.md §9): the run ends where the same happens again and again."""
    result = play(tmp_path, rows)
    assert [code for do, code in outcomes(result) if do == "send"] == sends
    assert result.match
    if rows.startswith(f"{SEND.format(64)}; expect"):
        assert result.ok, result
    else:
        number = 2 if len(sends) == 2 else 0
        assert result.failure == f"operation {number} (send) ended with NONE, SUCCESS was expected"
    assert result.virtual_time_ps < 10**12, "less than a second"


@pytest.mark.parametrize("late", ["20 ms", "2 s"])
def test_a_receive_that_comes_late(tmp_path: Path, late: str) -> None:
    """What is still to come is waited for, however long."""
    result = play(tmp_path, SEND.format(64) + f'\ndo = "receive"; length = 64; at = "{late}"')
    assert result.ok, result
    assert outcomes(result) == [("send", "SUCCESS"), ("receive", "SUCCESS")]


def test_another_outcome_than_expected(tmp_path: Path) -> None:
    result = play(tmp_path, 'do = "write"; length = 64; key = 1')
    assert result.failure == "operation 0 (write) ended with REM_ACCESS_ERR, SUCCESS was expected"
    assert result.match
    assert play(tmp_path, 'do = "write"; length = 64; key = 1; expect = "REM_ACCESS_ERR"').ok


# Memory that a failure leaves behind ----------------------------------------------------------------------------------


def test_a_read_that_fails_half_way(tmp_path: Path) -> None:
    """Its first packets are in the buffer."""
    rows = REGION + 'do = "read"; length = 8192; key = 1; expect = "RETRY_EXC_ERR"'
    result = play(tmp_path, rows, "faults.drop=[1, 2, 3]", "faults.from=b", "roce.retry_cnt=1", "roce.path_mtu=4096")
    assert result.ok, result


def test_a_write_whose_acks_are_lost(tmp_path: Path) -> None:
    """It failed, and is in memory all the same; what was behind it as well."""
    rows = REGION + 'do = "write"; length = 100; key = 1; expect = "RETRY_EXC_ERR"\n'
    rows += 'do = "fetch_add"; add = 7; key = 1; offset = 800; expect = "WR_FLUSH_ERR"'
    result = play(tmp_path, rows, "faults.drop=1.0", "faults.from=b", "roce.retry_cnt=1")
    assert result.ok, result


def test_a_queue_pair_is_stopped_half_way(tmp_path: Path) -> None:
    rows = """do = "receive"; length = 200000; expect = "NONE"
        do = "send"; length = 200000; expect = "WR_FLUSH_ERR"
        do = "modify"; to_state = "err"; at = "2 us" """
    result = play(tmp_path, rows)
    assert result.ok, result


@pytest.mark.parametrize("transport", ["rc", "uc"])
def test_no_right_at_the_region_or_at_the_queue_pair(tmp_path: Path, transport: str) -> None:
    """On UC nobody tells the sender."""
    code = "SUCCESS" if transport == "uc" else "{}"
    row = f'do = "write"; length = 64; key = 1; expect = "{code}"'
    rows = 'do = "region"; length = 64; key = 1; access = "local_write"\n' + row.format("REM_ACCESS_ERR")
    assert play(tmp_path, rows, transport=transport).ok
    more = '[qp.a]\n[qp.b]\naccess = ["local_write", "remote_read"]\n'
    assert play(tmp_path, REGION + row.format("REM_INV_REQ_ERR"), transport=transport, more=more).ok


# Faults of the file ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("length = 5", f"operation.0.do: is missing; legal: {', '.join(list(KINDS)[:3])}, …"),
        ('do = "put"', "operation.0.do: 'put'; legal: send, write"),
        ('do = "write"; length = 5', "operation.0: write needs key; legal: a whole number, 0 …"),
        ('do = "send"; length = 5; size = 5', "operation.0.size: unknown key; legal: do, node"),
        ('do = "send"; length = 5; key = 5', "operation.0.key: does not go with send; legal: do, node"),
        ('do = "send"; length = 5; node = "c"', "operation.0.node: no such node: 'c'; legal: a, b"),
        ('do = "send"; length = 5; qp = "c"', "operation.0.qp: 'c' is no queue pair of a; legal: a"),
        (
            'do = "send"; length = 5; expect = "OK"',
            "operation.0.expect: 'OK' is not legal; legal: SUCCESS, LOC",
        ),
        ('do = "send"; length = 5; to = "b"', "operation.0.to: goes with ud only"),
        ('do = "send"; length = 5; imm = 1; invalidate = 2', "operation.0.imm: does not go with invalidate"),
        ('do = "send"; length = 5; inline = true; lkey = 2', "operation.0.lkey: does not go with inline"),
        ('do = "modify"; to_state = "reset"', "operation.0.to_state: 'reset' is not legal; legal: rts, sqd, err"),
        (
            'do = "send"; length = 5; at = "2 us"\ndo = "send"; length = 5; at = "1 us"',
            "operation.1.at: 1000000 ps is before the row above",
        ),
    ],
)
def test_refusals(tmp_path: Path, rows: str, message: str) -> None:
    with pytest.raises(LocalError) as caught:
        load(scenario(tmp_path, rows))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("transport", "row", "message"),
    [
        ("uc", 'do = "read"; length = 5; key = 1', "read is not there on uc; transports that have it: rc"),
        ("uc", 'do = "send"; length = 5; invalidate = 1', "send with invalidate is not there on uc; transports that"),
        ("ud", 'do = "write"; length = 5; key = 1', "write is not there on ud; transports that have it: rc, uc"),
        ("ud", 'do = "fetch_add"; add = 5; key = 1', "fetch_add is not there on ud; transports that have it: rc"),
        ("ud", 'do = "send"; length = 5; to = "c"', "'c' is no queue pair; legal: a, b, or the address of a multicast"),
    ],
)
def test_what_a_transport_does_not_have(tmp_path: Path, transport: str, row: str, message: str) -> None:
    with pytest.raises(LocalError) as caught:
        load(scenario(tmp_path, row, transport))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ('do = "deregister"; key = 1', "8: operation.0: key: 0x1 is not registered at b"),
        ('do = "modify"; to_state = "sqd"\ndo = "modify"; to_state = "sqd"\ndo = "modify"; to_state = "rts"', None),
        (REGION + REGION, "12: operation.1: rkey: 1 is not legal; legal: 32 bits that no other region has"),
        (
            'do = "send"; length = 64\ndo = "modify"; to_state = "sqd"\ndo = "modify"; to_state = "rts"',
            "14: operation.2: state: SQD → RTS is not legal; legal: SQD, ERR, RESET",
        ),
    ],
)
def test_what_is_found_only_when_it_is_played(tmp_path: Path, rows: str, message: str | None) -> None:
    path = scenario(tmp_path, rows)
    if message is None:
        assert run(load(path)).ok
        return
    with pytest.raises(LocalError) as caught:
        run(load(path))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("[qp.a]\n[qp.b]\np_key = 65536\n", "qp.b.p_key: 65536 is not legal; legal: a whole number, 0 … 65535"),
        ("[qp.a]\n[qp.b]\npd = 5\n", "qp.b.pd: 5 is not legal"),
        ("[qp.a]\n[qp.b]\nnode = 'c'\n", "qp.b.node: no such node: 'c'; legal: a, b"),
    ],
)
def test_queue_pairs(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(LocalError) as caught:
        load(scenario(tmp_path, SEND.format(5), more=more))
    assert message in str(caught.value)


# Any rows -------------------------------------------------------------------------------------------------------------

SIZE = 40_000
DO = {
    "rc": ("send", "receive", "receive", "write", "write", "read", "fetch_add", "compare_swap"),
    "uc": ("send", "receive", "receive", "write", "write"),
    "ud": ("send", "receive"),
}


def any_row(rng: random.Random, transport: str, mtu: int) -> str:
    """Reads are not overtaken: what is behind them is fenced."""
    do = rng.choice(DO[transport])
    length = rng.choice((0, 1, mtu - 1, mtu, mtu + 1, rng.randrange(5 * mtu)))
    if transport == "ud":
        length = min(length, mtu)
    keys = {"do": f'"{do}"', "node": rng.choice(('"a"', '"b"')), "expect": '"NONE"'}
    if do == "receive":
        keys["length"] = str(rng.choice((length, length + 40, 6 * mtu, 6 * mtu)))
    else:
        keys |= {"signaled": rng.choice(("true", "true", "false")), "fence": "true"}
    if do in ("write", "read", "fetch_add", "compare_swap"):
        keys |= {"key": rng.choice("11112"), "offset": str(8 * rng.randrange(SIZE // 8 + 2 - length // 8))}
    if do in ("send", "write", "read"):
        keys["length"] = str(length)
    if do in ("send", "write") and rng.random() < 0.3:
        keys["imm"] = "7"
    if do == "fetch_add":
        keys["add"] = "5"
    if do == "compare_swap":
        keys |= {"compare": "5", "swap": "6"}
    if rng.random() < 0.2:
        keys["after"] = '"all"'
    return "; ".join(f"{name} = {value}" for name, value in keys.items())


@pytest.mark.parametrize("transport", DO)
@pytest.mark.parametrize("fault", ["nothing", "duplicate", "corrupt"])
def test_any_rows_on_a_bad_network(tmp_path: Path, transport: str, fault: str) -> None:
    """Whatever ends as it likes: memory is as the completions say, at both ends, and no byte of it is another."""
    for seed in range(effort(12, 25, 25)):
        rng = random.Random(f"{transport}, {fault}, {seed}")
        mtu = rng.choice((256, 1024, 4096))
        more = f"[roce]\npath_mtu = {mtu}\nretry_cnt = {rng.choice((0, 1, 7))}\nrnr_retry = {rng.choice((0, 1, 7))}\n"
        if fault != "nothing":
            more += f"[faults]\ndrop = {rng.choice((0.02, 0.2))}\nreorder = 0.1\n{fault} = 0.1\n"
        rows = [f'do = "region"; node = "{node}"; length = {SIZE}; key = 1' for node in "ab"]
        rows += [any_row(rng, transport, mtu) for _ in range(rng.randrange(1, 14))]
        result = play(tmp_path, "\n".join(rows), f"seed={seed}", transport=transport, more=more)
        assert result.match, (seed, result)
        assert not result.findings, (seed, result)
