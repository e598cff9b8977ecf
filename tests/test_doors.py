# SPDX-License-Identifier: GPL-2.0-only
"""Public functions refuse an argument of a wrong type with its name and what is legal, not from within."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.each import each
from tests.support.paths import PCAPS
from uetproto import Layer, LocalError, Packet, Trailer, columns, decode, encode, layers
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.audit.stats.measure import measure
from uetproto.emulator.run.play import run
from uetproto.emulator.scenario.settings import load
from uetproto.engine.tss.keys import KeyRing
from uetproto.traffic import profile
from uetproto.traffic.generate import generate
from uetproto.wire.capture.pcap import open_capture, open_writer

CAPTURE = str(PCAPS / "gradient.pcapng")
UDP = Layer("udp", {"dport": 4793})

CALLS: list[tuple[str, Callable[[Any], object], tuple[Any, ...]]] = [
    ("frame", decode, (None, 5, "x", [1], 1.5)),
    ("length", lambda value: decode(b"", length=value), ("x", [1])),
    ("trimmed_dscp", lambda value: decode(b"", trimmed_dscp=value), (5, None)),
    *((name, lambda value, name=name: decode(b"", **{name: value}), (None, [], {}))
      for name in ("link", "crc", "rd", "udp_port", "ip_protocol", "roce_port")),
    ("packet", encode, (None, 5, "x", b"x", {})),
    ("packet", lambda value: encode(value, fill=True), (None, 5)),
    ("layers", lambda value: encode(Packet(value)), (None, 5, "x")),
    ("layers[1]", lambda value: encode(Packet([UDP, value])), (None, 5, "x")),
    ("layers[0].form", lambda value: encode(Packet([Layer(value, {})])), ([],)),
    ("layers[0].values", lambda value: encode(Packet([Layer("udp", value)])), (None, 5)),
    *((name, lambda value, name=name: encode(Packet([UDP], **{name: value})), (None, "x", 5))
      for name in ("payload", "pad", "raw")),
    ("trailer", lambda value: encode(Packet([UDP], trailer=value)), (5, b"x")),
    ("trailer", lambda value: encode(Packet([UDP], trailer=Trailer(value, 0))), (None, 5)),
    ("rows", lambda value: next(columns.iter_batches(CAPTURE, value)), (0, "x", None, 1.5)),
    ("files", lambda value: audit(value, Options()), (None, 5, CAPTURE)),
    ("options", lambda value: audit([CAPTURE], value), (None, 5)),
    ("options", lambda value: measure([CAPTURE], value), (None, 5)),
    ("udp_port", layers.bind_uet, (None, "x", 70000)),
    ("ip_protocol", lambda value: layers.bind_uet(4793, value), (None, 256)),
    ("udp_port", layers.bind_roce, (None, "x", 70000)),
    ("packet", layers.layer_values, (None, 5, b"x")),
    ("scenario", load, (None, 5, [1])),
    ("settings", lambda value: load("gradient", value), (5, "mode=rud", [5])),
    ("scenario", run, (None, 5, "gradient")),
    ("path", lambda value: run(load("gradient"), output=value), (5,)),
    ("profile", profile.load, (None, 5)),
    ("profile", lambda value: generate(value, "x.pcap"), (None, "bench")),
    ("output", lambda value: generate(profile.load("bench"), value), (None, 5)),
    ("packets", lambda value: generate(profile.load("bench"), "x.pcap", packets=value), ("x", 1.5)),
    ("path", open_writer, (None, 5, [1])),
    ("path", KeyRing.read, (None, 5)),
    ("text", KeyRing.parse, (None, 5)),
]  # fmt: skip


@each("name, call, value", [(name, call, value) for name, call, values in CALLS for value in values])
def test_wrong_types(
    name: str, call: Callable[[Any], object], value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LocalError) as caught:
        call(value)
    assert caught.value.name == name
    assert caught.value.legal
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [None, 5, [1]])
def test_what_is_no_capture(value: Any) -> None:
    for read in (open_capture, columns.read):
        with pytest.raises(LocalError, match="is no path and no file"):
            read(value)


def test_a_path_object_names_a_scenario(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[run]\nses = "scripted"\n[nodes.a]\naddress = "10.0.0.1"\n[nodes.b]\naddress = "10.0.0.2"\n'
                    "[[step]]\nsubmit = 1\n")  # fmt: skip
    assert load(path).name == "mine"


def test_similar_names_in_columns() -> None:
    found = columns.read(CAPTURE)
    with pytest.raises(KeyError, match=r"pds.akc: no such form \(did you mean pds.ack"):
        found["pds.akc"]
    with pytest.raises(KeyError, match=r"no such field \(did you mean cack_psn"):
        found["pds.ack"]["cack_pns"]
