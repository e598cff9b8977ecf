# SPDX-License-Identifier: GPL-2.0-only
"""Functions for Python programs refuse a wrong argument by its name and with what is legal, not from within."""

from collections.abc import Callable
from typing import Any

import pytest

import uetproto
from tests.support.cli.frames import invoke
from tests.support.each import each
from tests.support.paths import PCAPS
from uetproto import columns

LOSSY = str(PCAPS / "gradient-lossy.pcapng")
Call = Callable[[Any], object]


def of_capture(call: Callable[[uetproto.Capture, Any], object]) -> Call:
    return lambda value: call(uetproto.open(LOSSY), value)


def argument_of(function: Callable[..., object], first: str, name: str) -> Call:
    return lambda value: function(first, **{name: value})


def drawn(name: str) -> Call:
    return of_capture(lambda capture, value: capture.ladder(**{name: value}))


CALLS: list[tuple[str, Call, tuple[Any, ...]]] = [
    ("source", uetproto.open, (None, 5, [1])),
    *((name, argument_of(uetproto.open, LOSSY, name), values) for name, values in (
        ("offsets_ns", (5, "x", [0.5], [1, 2])), ("keys", (5, [1])), ("link", (5, [1], "etherent")), ("crc", (5, None)),
        ("rd", (None, "x")), ("udp_port", ("x", 70_000)),
    )),
    ("index", of_capture(lambda capture, value: capture[value]), ("x", -1, slice(1, 3))),
    ("filter", of_capture(lambda capture, value: capture.filter(value)), (5, None, "")),
    ("fields", of_capture(lambda capture, value: capture.to_arrow(value)), (5, [None], [], "uetp.psn", {"a": 1})),
    ("other", of_capture(lambda capture, value: capture.diff(value)), (LOSSY, None)),
    ("ignore", of_capture(lambda capture, value: capture.diff(capture, ignore=value)), ("ipv4.ttl", 5)),
    ("path", of_capture(lambda capture, value: capture.report(value)), (5, None)),
    ("rows", of_capture(lambda capture, value: capture.report("x.html", rows=value)), ("x", -1)),
    ("rules", of_capture(lambda capture, value: capture.audit(value)), (5, None)),
    *((name, drawn(name), values) for name, values in (
        ("packets", (5, "ab", [], [-1], ["x"])), ("mark", (5, [None])), ("rows", ("x", -1)), ("width", (3, "x", 10**6)),
        ("pdc", ("x", -1)), ("interface", (7, "x")), ("columns", ("cwnd", [5])),
    )),
    ("path", of_capture(lambda capture, value: capture.to_parquet(value)), (5, None)),
    ("path", of_capture(lambda capture, value: capture.ladder().save(value)), (5, "x.png")),
    ("name", of_capture(lambda capture, value: capture[0][value]), (5, None)),
    ("name", of_capture(lambda capture, value: capture[0].get(value)), (5, None)),
    ("name", of_capture(lambda capture, value: value in capture[0]), (5, None)),
    ("scenario", uetproto.run, (None, 5)),
    *((name, argument_of(uetproto.run, "gradient", name), values) for name, values in (
        ("settings", ("x", [("a", 1)])), ("seed", (-1, "x", True)), ("output", (5, "-")),
    )),
    *((name, argument_of(uetproto.generate, "mixed", name), values) for name, values in (
        ("packets", ("x", 0, -1)), ("duration", ([1], -5, "5 parsec")), ("mutate", ("x", 5)), ("seed", ("x",)),
    )),
    *((name, argument_of(uetproto.fabric, "incast", name), values) for name, values in (
        ("hosts", ("x", 1)), ("tap", (5, "h0")), ("slow_links", ("x", -1)), ("cc", (5,)), ("lb", (5, "mixde")),
        ("topology", (5,)), ("flow_size", ("x",)), ("rate", ("fast",)), ("delay", ([],)), ("wire", ("x",)),
    )),
    *((name, argument_of(uetproto.collective, "all_reduce", name), values) for name, values in (
        ("dtype", (5,)), ("loss", ("x", 5)), ("seed", ("x",)), ("sharp", (5, "x")), ("ports", ("x", 0)),
        ("channels", ("x", 0)), ("mtu", ("x",)), ("lb", (5,)), ("transport", (5, "uet,roce")), ("tap", (5,)),
    )),
    ("op", uetproto.collective, (5, None)),
]  # fmt: skip


@each("name, call, value", [(name, call, value) for name, call, values in CALLS for value in values])
def test_wrong_arguments(name: str, call: Call, value: Any) -> None:
    with pytest.raises(uetproto.LocalError) as caught:
        call(value)
    assert name in caught.value.name or caught.value.name.endswith(name)
    assert str(caught.value)


CAPTURE = uetproto.open(LOSSY)
MISTYPED: list[tuple[Callable[[], object], str]] = [
    (lambda: CAPTURE[0]["pds.rod_req"]["pns"], "psn"),
    (lambda: CAPTURE[0].packet["pds.rod_rq"], "pds.rod_req"),
    (lambda: CAPTURE[0]["uetp.pds.rod_req.pns"], "uetp.pds.rod_req.psn"),
    (lambda: CAPTURE[0].sumary(), "summary"),  # type: ignore[attr-defined]
    (lambda: CAPTURE.flow, "flows"),  # type: ignore[attr-defined]
    (lambda: CAPTURE.flows[0].pakcets, "packets"),  # type: ignore[attr-defined]
    (lambda: CAPTURE.stats().flwos, "flows"),  # type: ignore[attr-defined]
    (lambda: CAPTURE.audit("PDS-WINDW"), "PDS-WINDOW"),
    (lambda: CAPTURE.audit(compelte=True), "complete"),  # type: ignore[call-arg]
    (lambda: CAPTURE.ladder(intrface="0"), "interface"),  # type: ignore[call-arg]
    (lambda: CAPTURE.to_arrow(["uetp.pns"]), "uetp.psn"),
    (lambda: columns.read(LOSSY)["pds.rod_rq"], "pds.rod_req"),
    (lambda: columns.read(LOSSY)["pds.rod_req"]["pns"], "psn"),
    (lambda: uetproto.open(LOSSY, udp_prt=1), "udp_port"),  # type: ignore[call-arg]
    (lambda: uetproto.run("gradiant"), "gradient"),
    (lambda: uetproto.run("gradient", {"pds.mp_rage": 1}), "mp_range"),
    (lambda: uetproto.generate("mixed", mutate={"bad-crx": 0.1}), "bad-crc"),
    (lambda: uetproto.collective("all_reduce", algoritm="ring"), "algorithm"),  # type: ignore[call-arg]
    (lambda: uetproto.collective("all_reduce", transport="ute"), "uet"),
    (lambda: uetproto.fabric("incast", hots=4), "hosts"),  # type: ignore[call-arg]
    (lambda: uetproto.fabric("incast", {"cc.base_rt": 1}), "cc.base_rtt"),
]


def test_a_name_that_is_nearly_right_is_told_with_those_that_are() -> None:
    for call, meant in MISTYPED:
        with pytest.raises((KeyError, AttributeError, TypeError, uetproto.LocalError)) as caught:
            call()
        hint = str(caught.value).partition("(did you mean ")[2].partition("?)")[0]
        assert meant in hint.split(" or "), caught.value


def test_a_value_of_a_header_that_was_looked_up_is_one_of_the_packet() -> None:
    packet = CAPTURE[0].packet
    packet["pds.rod_req"]["psn"] = 7
    assert uetproto.decode(uetproto.encode(packet))["pds.rod_req"]["psn"] == 7


ONE_ERROR: list[tuple[Callable[[], object], str, list[str], str]] = [
    (lambda: uetproto.run("gradient", {"mp_rage": 1}), "settings mp_rage", ["run", "gradient", "--set", "mp_rage=1"],
     "--set mp_rage"),
    (lambda: CAPTURE.audit("PDS-WINDW"), "rules PDS-WINDW", ["audit", LOSSY, "--rules", "PDS-WINDW"],
     "--rules PDS-WINDW"),
    (lambda: CAPTURE.audit(cc="rate=1 Gb/s,base_rtt=1 us"), "complete=True",
     ["audit", LOSSY, "--cc", "rate=1 Gb/s,base_rtt=1 us"], "--complete"),
    (lambda: uetproto.collective("all_reduce", reduce_op="SMU"), "reduce_op SMU",
     ["collective", "all_reduce", "--op", "SMU"], "--op SMU"),
    (lambda: uetproto.collective("all_reduce", transport="model", capture=True), "with transport",
     ["collective", "all_reduce", "--transport", "model", "-o", "x.pcap"], "with --transport"),
    (lambda: uetproto.fabric("incast", {"cc.lb": "mixed"}), "legal: lb", ["fabric", "incast", "--set", "cc.lb=mixed"],
     "legal: --lb"),
    (lambda: uetproto.generate("mixed", mutate={"cut": 2}), "mutate cut",
     ["generate", "mixed", "-o", "x.pcap", "--mutate", "cut=2"], "--mutate cut"),
]  # fmt: skip


def test_an_error_names_the_argument_in_python_and_the_option_on_the_command_line() -> None:
    for call, said, arguments, told in ONE_ERROR:
        with pytest.raises(uetproto.LocalError) as caught:
            call()
        assert said in str(caught.value)
        assert "--" not in str(caught.value).partition("uetproto ")[0]
        done = invoke(*arguments)
        assert done.exit_code == 2
        assert told in done.stderr
