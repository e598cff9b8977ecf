# SPDX-License-Identifier: GPL-2.0-only
"""The sealed captures of the reference provider open with the keys given beside them, and are explained (tss.md §2–7).

Keys, modes and what was sent come from the README of that folder; these tests are skipped where it is absent.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import paths
from tests.support.cli.frames import invoke
from tests.support.effort import effort
from tests.support.interop.same_fields import assert_same
from tests.support.interop.tshark import columns, folder, needs_tshark, run, shown_file
from uetproto import Packet, decode
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.headers.uet_pds import CtlType, NackCode, PdsType
from uetproto.wire.words.summary import summary

SHARED = paths.SHARED
REFPROV = SHARED / "captures" / "refprov"
SEALED = sorted(path for name in ("tss_*.pcap", "v6_tss_*.pcap") for path in REFPROV.glob(name))
pytestmark = pytest.mark.skipif(not SEALED, reason=f"no sealed captures of the reference provider in {REFPROV}")
each = pytest.mark.parametrize("path", SEALED, ids=lambda path: path.stem)
shown = pytest.mark.parametrize("path", SEALED[:: effort(2, 1, 1)], ids=lambda path: path.stem)
"""For what several runs of tshark say of each: `ci` takes every second one."""


@pytest.fixture
def home() -> Iterator[Path]:
    with folder() as path:
        yield path


def row_of(path: Path) -> list[str]:
    """What the README says of a capture: its cells."""
    rows = [line for line in (REFPROV / "README.md").read_text().splitlines() if line.startswith(f"| {path.stem} |")]
    return [cell.strip() for cell in rows[0].strip("|").split("|")]


def keys_of(path: Path, home: Path, *, wrong: bool = False) -> str:
    """The keys of the README as a file: of AN 0 and 1, and a third, which one capture has in the place of AN 1."""
    text = (REFPROV / "README.md").read_text()
    keys = re.findall(r"\b[0-9a-f]{64}\b", text)
    assert len(keys) == 3
    rows = [(an, key[::-1] if wrong else key) for an, key in zip((0, 1, 1), keys, strict=True)]
    mode = "direct" if "direct" in row_of(path)[1] else "cluster"
    rekey = "rekey_mask = 0xFF00\nrekey_shift = 8\n" if mode == "cluster" else ""
    listed = ", ".join(f'{{an = {an}, key = "{key}"}}' for an, key in rows)
    file = home / "keys.toml"
    file.write_text(f'[[sdi]]\nid = 1\nmode = "{mode}"\n{rekey}keys = [{listed}]\n')
    return str(file)


def dissect(*arguments: str) -> list[dict[str, Any]]:
    result = invoke("dissect", "--json", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


def opened(path: Path, home: Path) -> Path:
    """The capture written again with all of its packets open."""
    out = home / "plain.pcapng"
    result = invoke("open", str(path), "--keys", keys_of(path, home), "-o", str(out), "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    summary = json.loads(result.stdout)
    assert summary["sealed"] == summary["opened"] > 0
    assert summary["packets"] == len(dissect(str(path)))
    out.chmod(0o644)
    return out


def kind(packet: Packet) -> str:
    """A packet in the words of the README's column PDS."""
    layer = next(layer for layer in packet.layers if layer.form.startswith("pds."))
    values, name = layer.values, PdsType(layer.values["type"]).name
    if name == "NACK":
        return f"NACK 0x{NackCode(values['nack_code']):x}"
    if "ctl_type" in values:
        return f"CP {CtlType(values['ctl_type']).name.removesuffix('_CMD')}"
    if values.get("syn"):
        name += " syn"
    if "expected_psn" in values:
        name += "+epsn"
    return name + (" retx" if values["retx"] else "")


@each
def test_every_packet_opens_and_dissects(path: Path, home: Path) -> None:
    """Opened on the fly and opened in a file is the same, but for the security header and what ends the packet."""
    before = dissect(str(path))
    on_the_fly, in_a_file = dissect(str(path), "--keys", keys_of(path, home)), dissect(str(opened(path, home)))
    assert sum("sealed" in one["notes"] for one in before) >= 24
    for was, fly, file in zip(before, on_the_fly, in_a_file, strict=True):
        assert (fly["error"], fly["notes"], fly["trailer"]["ok"]) == (None, [], True)
        assert (file["error"], file["notes"], file["trailer"]["ok"]) == (None, [], True)
        assert file["trailer"]["kind"] == "crc32c"
        assert (fly["time_ns"], fly["length"]) == (was["time_ns"], was["length"])
        if "sealed" not in was["notes"]:
            assert {**was, "interface": 0} == fly == file
            continue
        size = len(was["layers"])
        assert fly["layers"][:size] == was["layers"]
        shift = fly["layers"][size]["offset"] - fly["layers"][size - 1]["offset"]
        assert file["layers"][size - 1 :] == [
            layer | {"offset": layer["offset"] - shift} for layer in fly["layers"][size:]
        ]
        assert fly["trailer"]["kind"] == "icv"
        assert file["length"] == was["length"] - shift - 16 + 4


@each
def test_what_was_sent_is_what_the_readme_says(path: Path, home: Path) -> None:
    with open_capture(opened(path, home)) as reader:
        found = Counter(kind(decode(record.data, crc="on")) for record in reader)
    expected: Counter[str] = Counter()
    for part in row_of(path)[3].split(", "):
        name, _, number = part.rpartition(" ")
        expected[name] += int(number)
    assert found == expected


@each
def test_wrong_keys_open_nothing(path: Path, home: Path) -> None:
    result = invoke(
        "open", str(path), "--keys", keys_of(path, home, wrong=True), "-o", str(home / "o.pcapng"), "--json"
    )
    summary = json.loads(result.stdout)
    assert (result.exit_code, summary["opened"]) == (1, 0)
    (row,) = summary["sdis"]
    assert (row["sdi"], sum(row["reasons"].values())) == (1, summary["sealed"])


@needs_tshark
@shown
def test_tshark_explains_an_opened_capture(path: Path, home: Path) -> None:
    """The plugin says of it what `dissect` says, and tshark shows the comments."""
    out = opened(path, home)
    with open_capture(out) as reader:
        packets = [decode(record.data) for record in reader]
    for found, packet in zip(shown_file(out, home), packets, strict=True):
        assert_same(found, packet, summary(packet))
    comments, _ = run(["-r", out, "-T", "fields", "-e", "frame.comment"], home)
    sealed = sum("sealed" in one["notes"] for one in dissect(str(path)))
    assert len(re.findall(r"^opened: SDI 1 AN [01] epoch 0 TSC \d+$", comments, re.MULTILINE)) == sealed


@needs_tshark
@shown
def test_tshark_shows_security_headers_and_says_sealed(path: Path, home: Path) -> None:
    copy = home / "sealed.pcap"
    copy.write_bytes(path.read_bytes())
    copy.chmod(0o644)
    with open_capture(path) as reader:
        packets = [decode(record.data) for record in reader]
    for (_, info), packet in zip(columns(copy, home), packets, strict=True):
        assert info.endswith("[sealed]") == ("sealed" in packet.notes)
        assert info.startswith("TSS SDI 1") == ("sealed" in packet.notes)
    for found, packet in zip(shown_file(copy, home), packets, strict=True):
        assert_same(found, packet, summary(packet))
