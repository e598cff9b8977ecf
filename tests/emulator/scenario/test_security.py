# SPDX-License-Identifier: GPL-2.0-only
"""`[security]` in scenario files: what is read, and how every fault is told, never with the value of a key."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner

from uetproto import LocalError
from uetproto.cli.main import cli
from uetproto.emulator.scenario.settings import SHIPPED, load, names
from uetproto.engine.contract import MICROSECOND, SECOND
from uetproto.engine.tss.keys import DomainConfig, DomainKey
from uetproto.errors import MissingPackageError
from uetproto.framing.security import KeyRotation, RekeyTrigger, Security, SecurityMember
from uetproto.wire.headers.uet_pds import NackCode

PLAIN = (SHIPPED / "gradient.toml").read_text(encoding="utf-8")
KEY, OTHER = "07e9724958d9e1f7" * 4, "d4c3a2cfb3c1067f" * 4
BOTH = f'keys = [{{ an = 0, key = "{KEY}" }}, {{ an = 1, key = "{OTHER}" }}]'
LINE = PLAIN.count("\n") + 2
"""Of `[security]`; its first key is in the next one."""


def write(tmp_path: Path, section: str, nodes: str = "") -> str:
    (tmp_path / "gradient.npy").write_bytes((SHIPPED / "gradient.npy").read_bytes())
    path = tmp_path / "mine.toml"
    text = PLAIN.replace('address = "10.0.1.11"', f'address = "10.0.1.11"\n{nodes}') if nodes else PLAIN
    path.write_text(f"{text}\n[security]\n{section}\n", encoding="utf-8")
    return str(path)


def refusal(tmp_path: Path, section: str, nodes: str = "", settings: tuple[str, ...] = ()) -> str:
    with pytest.raises(LocalError) as caught:
        load(write(tmp_path, section, nodes), settings)
    text = str(caught.value).removeprefix(f"{tmp_path}/")
    assert KEY[:16] not in text
    assert OTHER[:16] not in text
    return text


def security_of(name: str, *settings: str) -> Security:
    security = load(name, settings).security
    assert security is not None
    return security


def test_defaults(tmp_path: Path) -> None:
    """Those of tss.md §3, §15."""
    scenario = load(write(tmp_path, f'key = "{KEY}"'))
    security = scenario.security
    assert security is not None
    assert (security.domain.sdi, security.domain.mode) == (1, "direct")
    assert (security.rotation, security.epoch_at, security.is_clear_in_part) == (None, None, False)
    for member in security.members.values():
        assert member == SecurityMember(domain=DomainConfig(sdi=1, mode="direct", keys=member.domain.keys))
    assert {node.pds.secure_start for node in scenario.nodes.values()} == {"expected"}
    assert load("gradient").security is None
    assert {node.pds.secure_start for node in load("gradient").nodes.values()} == {"off"}


def test_everything_is_read(tmp_path: Path) -> None:
    section = f"""
sdi = 0x1234
mode = "cluster"
{BOTH}
rekey_mask = 0xFF00
rekey_shift = 8
crypto_offset = 32
ipv6_ssi_context = "small"
start = "random"
plain = "pass"
rotate_at = "5 us"
epoch = 65535
epoch_at = 7
rx_max_epoch_lifetime = 3
auth_fail_threshold = 4
invoke_fatal_threshold = 5
strict_tsc_halves = false
clear_nacks = ["NEW_START_PSN"]
"""
    scenario = load(write(tmp_path, section), ("nodes.rank0.ssi=5", "nodes.rank2.ssi=6"))
    security = scenario.security
    assert security is not None
    domain = security.domain
    assert (domain.sdi, domain.mode, domain.rekey_mask, domain.rekey_shift) == (0x1234, "cluster", 0xFF00, 8)
    assert (domain.crypto_offset, domain.ipv6_ssi_context) == (32, "small")
    assert domain.ssis == {0x0A00000B: 5, 0x0A00010B: 6}
    assert [slot[0].value.hex() for slot in domain.keys] == [KEY, OTHER]
    assert (domain.rx_max_epoch_lifetime, domain.auth_fail_threshold, domain.invoke_fatal_threshold) == (3, 4, 5)
    assert not domain.strict_tsc_halves
    for member in security.members.values():
        assert (member.epoch, member.plain, member.clear_nacks) == (65535, "pass", {NackCode.NEW_START_PSN})
    assert security.rotation == KeyRotation(RekeyTrigger(None, 5 * MICROSECOND), 2 * SECOND)
    assert security.epoch_at == RekeyTrigger(7, None)
    assert {node.pds.secure_start for node in scenario.nodes.values()} == {"random"}


def test_keys_do_not_show(tmp_path: Path) -> None:
    scenario = load(write(tmp_path, BOTH, f'[nodes.rank2.security]\nkey = "{OTHER}"'))
    for text in (repr(scenario), str(asdict(scenario.nodes["rank0"]))):
        assert KEY[:16] not in text
        assert bytes.fromhex(KEY)[:4].hex() not in text


@pytest.mark.parametrize(
    "setting",
    [
        f"security.key:{KEY}", f"security.{KEY}=1", f"security.sdi={KEY}", f"security.server={KEY}", f"{KEY}=1",
        f'security.server=["{KEY}"]',
    ],
)  # fmt: skip
def test_keys_by_hand_do_not_show(setting: str) -> None:
    with pytest.raises(LocalError) as caught:
        load("gradient-sealed-client-server", (setting,))
    assert KEY[:16] not in str(caught.value)


@pytest.mark.parametrize("text", [f"[x.{KEY}]\n[x.{KEY}]", f'[security]\nkey = "{KEY}', f"{KEY}\n", f"[{KEY}"])
def test_keys_of_a_file_that_is_no_toml_do_not_show(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(LocalError) as caught:
        load(str(path))
    assert KEY[:16] not in str(caught.value)


def test_a_server_is_the_target_by_default(tmp_path: Path) -> None:
    path = write(tmp_path, f'mode = "client-server"\nkey = "{KEY}"')
    for settings, server in (((), 0x0A00010B), (("security.server=rank0",), 0x0A00000B)):
        security = load(path, settings).security
        assert security is not None
        assert security.domain.servers == {server}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("", f"{LINE}: security: SDI 1 has no key for node rank0; legal: key = "),
        ("sdi = 7", f"{LINE}: security: SDI 7 has no key for node rank0; legal: key = "),
        ("key = 5", f"{LINE + 1}: security.key: no text; legal: 64 hexadecimal digits"),
        (f'key = "{KEY[2:]}"', f"{LINE + 1}: security.key: 31 bytes; legal: 32"),
        (f'key = "{KEY[:-1]}z"', f"{LINE + 1}: security.key: 64 characters, not all hexadecimal; legal: 64"),
        (f'key = "{KEY + OTHER[:24]}"', f"{LINE + 1}: security.key: 44 bytes in mode direct; legal: 32 bytes"),
        (f'keys = [{{ an = 1, key = "{KEY + OTHER[:24]}" }}]', f"{LINE + 1}: security.keys: 44 bytes in mode direct"),
        (f'key = "{KEY}"\n{BOTH}', f"{LINE + 1}: security.key: does not go with keys"),
        ("keys = 5", f"{LINE + 1}: security.keys: is no list of keys; legal: key = "),
        ("keys = [5]", f"{LINE + 1}: security.keys.0: is a value; legal: the table"),
        ("keys = [{ an = 0 }]", f"{LINE + 1}: security.keys.0: key missing"),
        (f'keys = [{{ an = 2, key = "{KEY}" }}]', f"{LINE + 1}: security.keys.0.an: 2 is not legal; legal: a whole"),
        (BOTH.replace("an = 1", "an = 0"), f"{LINE + 1}: security.keys.1.an: AN 0 has a key already"),
        (f'key = "{KEY}"\nsdi = 16777216', f"{LINE + 2}: security.sdi: 16777216 is not legal; legal: a whole number"),
        (f'key = "{KEY}"\nmode = "ring"', f"{LINE + 2}: security.mode: 'ring' is not legal; legal: direct, cluster,"),
        (f'mode = "{KEY}"', f"{LINE + 1}: security.mode: '…' is not legal; legal: direct, cluster,"),
        (f'key = "{KEY}"\nrekey_mask = 1', f"{LINE + 2}: security.rekey_mask: mode direct has no rekey; legal: 0, or"),
        (f'key = "{KEY}"\nserver = "rank2"', f"{LINE + 2}: security.server: mode direct has none; legal: mode client"),
        (
            f'key = "{KEY}"\nserver = "x"\nmode = "client-server"',
            f"{LINE + 2}: security.server: no such node: 'x'; leg",
        ),
        (f'key = "{KEY}"\ncrypto_offset = 11', f"{LINE + 2}: security.crypto_offset: 11 is not legal; legal: "),
        (f'key = "{KEY}"\nrotate_at = 6', f"{LINE + 2}: security.rotate_at: node rank0 needs two different keys"),
        (
            f"{BOTH.replace(OTHER, KEY)}\nrotate_at = 6",
            f"{LINE + 2}: security.rotate_at: node rank0 needs two different keys; legal: one for each AN",
        ),
        (f"{BOTH}\nrotate_at = 0", f"{LINE + 2}: security.rotate_at: 0 is not legal; legal: a number of packets"),
        (f"{BOTH}\nrotate_guard = 6", f"{LINE + 2}: security.rotate_guard: does not go without rotate_at"),
        (
            f'key = "{KEY}"\nstart = "on"',
            f"{LINE + 2}: security.start: 'on' is not legal; legal: off, expected, random",
        ),
        (f'key = "{KEY}"\nplain = "no"', f"{LINE + 2}: security.plain: 'no' is not legal; legal: drop, pass"),
        (f'key = "{KEY}"\nepoch = 65536', f"{LINE + 2}: security.epoch: 65536 is not legal; legal: a whole number"),
        (f'key = "{KEY}"\nepoch_at = 0', f"{LINE + 2}: security.epoch_at: 0 is not legal; legal: a number of packets"),
        (
            f'mode = "client-server"\nkey = "{KEY + OTHER[:24]}"\nepoch_at = 1',
            f"{LINE + 3}: security.epoch_at: node rank0 has a key that was derived for one epoch; legal: keys of 32",
        ),
        (
            f'key = "{KEY}"\nrx_max_epoch_lifetime = 32768',
            f"{LINE + 2}: security.rx_max_epoch_lifetime: 32768 is not legal; legal: a whole number, 0 … 32767",
        ),
        (
            f'key = "{KEY}"\nauth_fail_threshold = -1',
            f"{LINE + 2}: security.auth_fail_threshold: -1 is not legal; legal: a whole number, 0 … 0xffffffffffff",
        ),
        (
            f'key = "{KEY}"\ninvoke_fatal_threshold = true',
            f"{LINE + 2}: security.invoke_fatal_threshold: True is not legal; legal: a whole number",
        ),
        (
            f'key = "{KEY}"\nstrict_tsc_halves = 1',
            f"{LINE + 2}: security.strict_tsc_halves: 1 is not legal; legal: true, false",
        ),
        (
            f'key = "{KEY}"\nclear_nacks = ["TRIMMED"]',
            f"{LINE + 2}: security.clear_nacks: ['TRIMMED'] is not legal; legal: a list of some of NEW_START_PSN, INV_",
        ),
        (
            f'key = "{KEY}"\nclear_nacks = true',
            f"{LINE + 2}: security.clear_nacks: True is not legal; legal: a list of",
        ),
        (
            f'key = "{KEY}"\nepochs = 1',
            f"{LINE + 2}: security.epochs: unknown key (did you mean epoch or epoch_at?); legal: sdi, mode, key",
        ),
        (f'key = "{KEY}"\n[pds]\nsecure_start = "off"\n[security.x]', f"{LINE + 4}: security.x: unknown key"),
        (
            f'start = "off"\nkey = "{KEY}"\n[pds]\nsecure_start = "off"',
            f"{LINE + 1}: security.start: does not go with p",
        ),
        (f'key = "{KEY}', f"{LINE + 1}: Illegal character"),
        (f"{KEY} = 1", f"{LINE + 1}: security.…: unknown key; legal: sdi, mode, key"),
    ],
)
def test_refusals(tmp_path: Path, section: str, message: str) -> None:
    assert refusal(tmp_path, section).startswith(f"mine.toml:{message}")


def test_a_key_of_one_node_is_refused_at_its_place(tmp_path: Path) -> None:
    text = refusal(tmp_path, f'key = "{KEY}"', f'[nodes.rank2.security]\nkey = "{KEY + OTHER[:24]}"')
    assert text.startswith("mine.toml:31: nodes.rank2.security.key: 44 bytes in mode direct; legal: 32 bytes")


def test_what_all_share_is_refused_at_its_place(tmp_path: Path) -> None:
    text = refusal(tmp_path, f'key = "{KEY}"\nrekey_mask = 1', f'[nodes.rank0.security]\nkey = "{OTHER}"')
    assert text.startswith(f"mine.toml:{LINE + 4}: security.rekey_mask: mode direct has no rekey")


def test_who_reads_along_has_the_keys_of_all_nodes(tmp_path: Path) -> None:
    path = write(tmp_path, f"sdi = 9\n{BOTH}", f'[nodes.rank2.security]\nkey = "{OTHER}"')
    security = load(path).security
    assert security is not None
    slots = security.ring()[9].keys
    first, other = (DomainKey(bytes.fromhex(key)) for key in (KEY, OTHER))
    assert slots == ((first, other), (other,))


def test_what_one_node_has_of_its_own(tmp_path: Path) -> None:
    """The last one to say something wins: personality, [security], [nodes.NAME.security]."""
    own = '[nodes.rank0.security]\nepoch = 4\nplain = "pass"\ninvoke_fatal_threshold = 9'
    security = load(write(tmp_path, f'key = "{KEY}"\nepoch = 3', own)).security
    assert security is not None
    first, second = security.members.values()
    assert (first.epoch, first.plain, first.domain.invoke_fatal_threshold) == (4, "pass", 9)
    assert (second.epoch, second.plain, second.domain.invoke_fatal_threshold) == (3, "drop", 2**48 - 1)
    assert first.domain.keys == second.domain.keys


@pytest.mark.parametrize("key", ["sdi", "mode", "rotate_at", "epoch_at", "start", "server"])
def test_what_all_must_share(key: str) -> None:
    with pytest.raises(LocalError, match=f"nodes.rank2.security.{key}: unknown key.*; legal: key, epoch, "):
        load("gradient-sealed-direct", (f"nodes.rank2.security.{key}=1",))


def test_the_personality_of_one_node() -> None:
    """observed.md: the rows that speak of TSS."""
    refprov = ("nodes.rank2.personality=refprov", "payload_mtu=1024")
    first, second = security_of("gradient-sealed-client-server", *refprov).members.values()
    assert (first.plain, first.clear_nacks, first.domain.strict_tsc_halves) == ("drop", frozenset(), True)
    assert (second.plain, second.domain.strict_tsc_halves) == ("pass", False)
    assert second.clear_nacks == {NackCode.NEW_START_PSN, NackCode.INV_DPDCID}
    keys = ("security.plain=drop", "nodes.rank2.security.clear_nacks=[]")
    _, second = security_of("gradient-sealed-client-server", *refprov, *keys).members.values()
    assert (second.plain, second.clear_nacks, second.domain.strict_tsc_halves) == ("drop", frozenset(), False)


def test_an_ssi_of_each_node_or_of_none(tmp_path: Path) -> None:
    key = f'key = "{KEY}"'
    assert refusal(tmp_path, key, "ssi = 5").startswith(
        "mine.toml:25: nodes.rank0: ssi is missing; legal: one for each"
    )
    both = refusal(tmp_path, key, "ssi = 5", ("nodes.rank0.ssi=5",))
    assert both == "mine.toml:30: nodes.rank2.ssi: is that of rank0; legal: one for each node"


def test_direct_over_ipv6_needs_an_ssi(tmp_path: Path) -> None:
    v6 = ("nodes.rank0.address=fd00::a00:b", "nodes.rank2.address=fd00::a00:10b")
    text = refusal(tmp_path, f'mode = "direct"\nkey = "{KEY}"', settings=v6)
    assert text.startswith(f"mine.toml:{LINE + 1}: security.mode: direct over IPv6 needs an SSI of each node; legal: ")
    load(write(tmp_path, f'mode = "cluster"\nkey = "{KEY}"'), v6)
    load(write(tmp_path, f'mode = "direct"\nkey = "{KEY}"'), (*v6, "nodes.rank0.ssi=1", "nodes.rank2.ssi=2"))


@pytest.mark.parametrize("setting", ["nodes.rank0.ssi=5", f"nodes.rank0.security.key={KEY}"])
def test_what_needs_the_section(setting: str) -> None:
    with pytest.raises(LocalError, match="does not go without the section"):
        load("gradient", (setting,))


def test_not_over_roce() -> None:
    with pytest.raises(LocalError, match=r"security: does not go with this transport; run.transport may be uet$"):
        load("gradient-roce", (f"security.key={KEY}",))


@pytest.mark.parametrize("digits", ["1" * 64, "0" * 64, "1" * 31 + "e" + "2" * 32])
def test_a_key_by_hand_may_look_like_a_number(digits: str) -> None:
    security = load("gradient-sealed-direct", (f"security.key={digits}",)).security
    assert security is not None
    assert security.domain.keys[0][0].value.hex() == digits


def test_the_mtu_has_room_for_the_seal() -> None:
    """tss.md §7.4: 4096 bytes make an IP packet of 4208, or of 4212 with SSI; in clear 4184."""
    load("gradient", ("fabric.mtu=4184",))
    load("gradient-sealed-direct", ("fabric.mtu=4208",))
    for name, needed in (("direct", 4208), ("client-server", 4212)):
        with pytest.raises(LocalError, match=f"an IP packet of {needed}"):
            load(f"gradient-sealed-{name}", (f"fabric.mtu={needed - 1}",))


def test_what_run_says() -> None:
    told = CliRunner().invoke(cli, ["run", "gradient-sealed-direct", "--set", "faults.corrupt=[1]"])
    assert told.exit_code == 0
    assert "  rank2: 5 sealed, 5 opened, 1 refused: does not open\n" in told.output
    data = json.loads(CliRunner().invoke(cli, ["run", "gradient-sealed-rotation", "--json"]).output)
    assert data["security"]["rank0"] == {
        "sealed": 13, "opened": 3, "refused": {}, "an": 1, "epoch": 0,
        "counters": {"in_auth_pkts": 3, "out_auth_pkts": 13},
    }  # fmt: skip
    wrong = CliRunner().invoke(cli, ["run", "gradient-sealed-direct", "--set", f"nodes.rank2.security.key={OTHER}"])
    assert wrong.exit_code == 1
    assert "packets of SDI 1 did not open" in wrong.output
    assert OTHER[:16] not in wrong.output


# Without the package --------------------------------------------------------------------------------------------------


@pytest.fixture
def no_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)


@pytest.mark.usefixtures("no_cryptography")
def test_what_needs_no_package_runs_without_it() -> None:
    """The others go on; what is missing is said once, with the names of those that it kept from running."""
    told = CliRunner().invoke(cli, ["run", "gradient*1024", "gradient-sealed-*", "ses-send", "--json"])
    assert [json.loads(line)["scenario"] for line in told.stdout.splitlines()] == ["gradient-1024", "ses-send"]
    with pytest.raises(MissingPackageError) as missing:
        cli.main(["run", "gradient*1024", "gradient-sealed-*", "ses-send"], standalone_mode=False)
    sealed = ", ".join(name for name in names() if name.startswith("gradient-sealed-"))
    package = "security: needs the package cryptography; pip install 'uetproto[security]'"
    assert str(missing.value) == f"not run: {sealed}: {package}"


@pytest.mark.usefixtures("no_cryptography")
def test_a_run_that_needs_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.status(["run", "gradient", "--set", f"security.key={KEY}"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("uetproto: not run: gradient: security: needs the package cryptography; ")
    assert KEY[:16] not in err
