# SPDX-License-Identifier: GPL-2.0-only
"""Profiles: what is read, and how every fault is told: file, line, key, what is legal."""

import random
from pathlib import Path

import pytest

from uetproto import LocalError
from uetproto.engine.contract import MICROSECOND, Mode
from uetproto.traffic.profile import KEYS, load, names
from uetproto.traffic.profile_file import Mix, Sizes
from uetproto.traffic.profile_uet import CHOICES
from uetproto.wire.headers.uet_ses import Opcode

GOOD = """\
description = "two kinds"
transport = "uet"
modes = { rod = 1, rud = 3 }
sizes = [64, "4 KiB", "1 .. 100"]
jobs = 3
endpoints = 4
encapsulation = "native"
crc = "off"
loss = 0.01
rate = "100 Gb/s"
delay = "2 us"
tap = "wire"

[operations]
write = 0.7
read = 0.3

[ses]
payload_mtu = 2048
"""


def write(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def refusal(folder: Path, old: str, new: str, *settings: str) -> str:
    """The message for the good profile with one change, without the folder."""
    assert old in GOOD
    with pytest.raises(LocalError) as caught:
        load(write(folder, GOOD.replace(old, new)), settings)
    return str(caught.value).removeprefix(f"{folder}/")


def test_all_keys(tmp_path: Path) -> None:
    profile = load(write(tmp_path, GOOD))
    assert (profile.name, profile.description, profile.transport) == ("mine", "two kinds", "uet")
    assert profile.operations.things == (Opcode.WRITE, Opcode.READ)
    assert profile.modes == {Mode.ROD: 1, Mode.RUD: 3}
    assert set(profile.sizes.things) == {Sizes(64, 64), Sizes(4096, 4096), Sizes(1, 100)}
    assert (profile.jobs, profile.endpoints, profile.initiators, profile.pdcs) == (3, 4, 2, 1)
    assert (profile.how.udp, profile.how.crc, profile.ip) == (False, False, 4)
    assert (profile.loss, profile.reorder, profile.trim, profile.protocol_errors) == (0.01, 0, 0, 0)
    assert (profile.rate, profile.delay, profile.tap) == (100 * 10**9, 2 * MICROSECOND, "wire")
    assert profile.ses.payload_mtu == 2048


def test_shipped() -> None:
    assert set(names()) == {
        "atomics", "bench", "lossy", "mixed", "sealed", "sends",
        "roce-bench", "roce-mixed", "roce-rc", "roce-uc", "roce-ud",
    }  # fmt: skip
    for name in names():
        assert load(name).name == name
    bench = load("bench")
    assert (bench.operations.things, bench.modes, bench.sizes.things) == (
        (Opcode.WRITE,), {Mode.RUD: 1}, (Sizes(65536, 65536),),
    )  # fmt: skip
    assert (bench.ses.payload_mtu, bench.how.crc, bench.loss) == (1024, True, 0)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("jobs = 3", "job = 3", "mine.toml:5: job: unknown key (did you mean jobs?); legal: description"),
        ("jobs = 3", "jobs = 0", "mine.toml:5: jobs: 0 is not legal; legal: a whole number, 1 … 4096"),
        ("read = 0.3", "reed = 0.3", "mine.toml:16: operations.reed: "),
        ("read = 0.3", "read = -1", "mine.toml:16: operations.read: "),
        ('"uet"', '"rc"', "mine.toml:3: modes: unknown key with transport rc; legal: description, transport, operatio"),
        ('"uet"', '"tcp"', "mine.toml:2: transport: 'tcp' is not legal"),
        ("rod = 1, rud = 3", "uud = 1", "mine.toml:15: operations.write: none of the modes uud carries it; legal: r"),
        ("rod = 1,", "uud = 1,", "mine.toml:3: modes.uud: none of the operations can use it; it carries datagram_send"),
        ("read = 0.3", "deferrable_send = 1", None),
        ('"1 .. 100"', '"100 .. 1"', "mine.toml:4: sizes: "),
        ('"4 KiB"', "-4", "mine.toml:4: sizes: "),
        ("loss = 0.01", "loss = 1.5", "mine.toml:9: loss: 1.5 is not legal; legal: a share 0 … 1"),
        ("2048", "1000", "mine.toml:19: ses.payload_mtu: 1000 is not legal; legal: 1024, 2048, 4096, 8192"),
        ("payload_mtu", "mtu", "mine.toml:19: ses.mtu: unknown key (did you mean payload_mtu?); legal"),
        ('payload_mtu = 2048', 'profile = "ai_base"', "mine.toml:16: operations.read: is not of the profile ai_base"),
        ("[ses]\n", "[pds]\nmax_pdcs = 3\n[ses]\n", "mine.toml:1: pdcs: an endpoint would need 4 PDCs, pds.max_pdcs"),
        ('tap = "wire"', "tap = wire", "mine.toml:12: Invalid value; legal: TOML"),
        ('tap = "wire"', 'tap = "both"', "mine.toml:12: tap: 'both' is not legal; legal: initiator, target, wire"),
        ("modes = { rod = 1, rud = 3 }\n", "", "mine.toml:1: modes: is missing; legal: "),
        ("[operations]\nwrite = 0.7\nread = 0.3\n", "", "mine.toml:1: operations: is missing; legal: "),
        ("write = 0.7\nread = 0.3", "write = 0", "mine.toml:14: operations: "),
    ],
)  # fmt: skip
def test_bad_profiles(tmp_path: Path, old: str, new: str, message: str | None) -> None:
    if message is None:
        assert load(write(tmp_path, GOOD.replace(old, new))).operations.things[1] is Opcode.DEFERRABLE_SEND
    else:
        assert refusal(tmp_path, old, new).startswith(message)


def test_a_profile_may_be_no_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"jobs = 1\nname = '\xff'\n")
    with pytest.raises(LocalError, match=r"mine.toml:2: byte 0xff is not UTF-8"):
        load(str(path))
    with pytest.raises(LocalError, match="nothing: no such profile; legal: atomics, bench"):
        load("nothing")
    with pytest.raises(FileNotFoundError):
        load(str(tmp_path / "nothing.toml"))


def test_settings_by_hand(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    settings = (
        "loss=0", "operations.read=0", "sizes=4 KiB", "payload_mtu=1024", "pds.max_pdcs=12", "modes=rod", "ip=6",
        "description=5",
    )  # fmt: skip
    profile = load(path, settings)
    assert (profile.loss, profile.operations.things, profile.sizes.things) == (0, (Opcode.WRITE,), (Sizes(4096, 4096),))
    assert (profile.ses.payload_mtu, profile.pds.max_pdcs, profile.modes, profile.ip) == (1024, 12, {Mode.ROD: 1}, 6)
    assert profile.description == "5"
    assert load("bench", ["operations.read=1"]).operations.things == (Opcode.READ,)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("loss", "settings loss: legal is key=value"),
        ("loss=2", "settings loss: 2 is not legal; legal: a share 0 … 1"),
        ("losses=0", "settings losses: unknown key (did you mean loss?); legal: "),
        ("transport=ud", "settings transport: modes: unknown key with transport ud; legal: "),
        ("loss.x=0", "settings loss.x: loss is not a table"),
        ("modes=uud", "settings modes: operations.write: none of the modes"),
        ("modes.uud=1", "settings modes.uud: none of the operations can use it"),
        ("ses.profile=ai_base", "settings ses.profile: operations.read: is not of the profile"),
        ("operations.send_tagged=1", "settings operations.send_tagged: "),
        ("ses.payload_mtu=1", "settings ses.payload_mtu: 1 is not legal"),
        ("ses=1", "settings ses: is a value; legal: the table [ses]"),
        ("pdcs=50000", "settings pdcs: an endpoint would need"),
        ("operations={write=-1}", "settings operations: operations.write: -1 is not legal; legal: one of these"),
        ("operations.write=-1", "settings operations.write: -1 is not legal; legal: one of these"),
        ("sizes={'4 KiB'=1,'9 XiB'=1}", "settings sizes: sizes.9 XiB: '9 XiB' is not legal; legal: bytes"),
        ('sizes=["4 KiB","9 XiB"]', "settings sizes: '9 XiB' is not legal; legal: bytes"),
        ("ses.tx_size=7", "settings ses.tx_size: 7 is less than depth; legal: 8 and more"),
    ],
)
def test_bad_settings(tmp_path: Path, setting: str, message: str) -> None:
    with pytest.raises(LocalError) as caught:
        load(write(tmp_path, GOOD), [setting])
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["ses.rx_size=15"],
            "settings ses.rx_size: 15 is less than what can be open to a target, depth × initiators; leg",
        ),
        (
            ["sizes=4 GiB"],
            "settings sizes: 4294967296 bytes do not go into one tagged_send; legal: up to 4294967294 bytes",
        ),
        (
            ["ses.max_msg_size=64"],
            "settings ses.max_msg_size: sizes: 4096 bytes do not go into one tagged_send; legal: up",
        ),
        (
            ["jobs=4096", "endpoints=256"],
            "settings jobs: 4096 jobs at 256 endpoints are 1,048,576 processes; legal: at mo",
        ),
        (
            ["endpoints=256", "jobs=257"],
            "settings jobs: 257 jobs at 256 endpoints are 65,792 processes; legal: at most 65",
        ),
    ],
)
def test_what_does_not_fit_together(tmp_path: Path, settings: list[str], message: str) -> None:
    text = GOOD.replace("read = 0.3", "tagged_send = 0.3")
    with pytest.raises(LocalError) as caught:
        load(write(tmp_path, text), settings)
    assert str(caught.value).startswith(message)


def test_what_fits_together(tmp_path: Path) -> None:
    text = GOOD.replace("read = 0.3", "tagged_send = 0.3")
    load(write(tmp_path, text), ["ses.rx_size=16", "ses.tx_size=8", "ses.max_msg_size=4096"])
    load(write(tmp_path, text), ["jobs=256", "endpoints=256"])
    load(write(tmp_path, GOOD), ["ses.rx_size=1", "ses.max_msg_size=64"])  # nothing is received; writes are cut


def test_shares_are_met() -> None:
    rng = random.Random(1)
    mix = Mix({"a": 1.0, "b": 3.0, "c": 0.0})
    drawn = [mix.draw(rng) for _ in range(4000)]
    assert mix.things == ("a", "b")
    assert 0.72 < drawn.count("b") / 4000 < 0.78
    sizes = {Sizes(3, 5).draw(rng) for _ in range(100)}
    assert sizes == {3, 4, 5}


def test_every_key_of_the_interface_is_there() -> None:
    """interfaces.md §7."""
    wanted = {
        "transport", "operations", "sizes", "jobs", "endpoints", "pdcs", "modes", "encapsulation", "crc", "loss",
        "reorder", "trim", "protocol_errors", "rate", "tap",
    }  # fmt: skip
    assert wanted <= KEYS.keys()
    assert {"write", "read", "atomic", "fetching_atomic", "send", "tagged_send", "datagram_send"} <= CHOICES.keys()
