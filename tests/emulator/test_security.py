"""`[security]` in scenario files: what is read, and how every fault is told, never with the value of a key."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner

from uetproto import LocalError
from uetproto.cli.main import cli
from uetproto.emulator.security import Rotation
from uetproto.emulator.settings import SHIPPED, load
from uetproto.engine.contract import MICROSECOND, SECOND

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


def test_defaults(tmp_path: Path) -> None:
    scenario = load(write(tmp_path, f'key = "{KEY}"'))
    security = scenario.security
    assert security is not None
    assert (security.domain.sdi, security.domain.mode, security.plain, security.rotation) == (1, "direct", "drop", None)
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
"""
    scenario = load(write(tmp_path, section), ("nodes.rank0.ssi=5", "nodes.rank2.ssi=6"))
    security = scenario.security
    assert security is not None
    domain = security.domain
    assert (domain.sdi, domain.mode, domain.rekey_mask, domain.rekey_shift) == (0x1234, "cluster", 0xFF00, 8)
    assert (domain.crypto_offset, domain.ipv6_ssi_context) == (32, "small")
    assert domain.ssis == {0x0A00000B: 5, 0x0A00010B: 6}
    assert [slot[0].value.hex() for slot in domain.keys] == [KEY, OTHER]
    assert security.plain == "pass"
    assert security.rotation == Rotation(None, 5 * MICROSECOND, 2 * SECOND)
    assert {node.pds.secure_start for node in scenario.nodes.values()} == {"random"}


def test_keys_do_not_show(tmp_path: Path) -> None:
    scenario = load(write(tmp_path, BOTH, f'[nodes.rank2.security]\nkey = "{OTHER}"'))
    for text in (repr(scenario), str(asdict(scenario.nodes["rank0"]))):
        assert KEY[:16] not in text
        assert bytes.fromhex(KEY)[:4].hex() not in text


@pytest.mark.parametrize("setting", [f"security.key:{KEY}", f"security.{KEY}=1", f"security.sdi={KEY}"])
def test_keys_by_hand_do_not_show(setting: str) -> None:
    with pytest.raises(LocalError) as caught:
        load("gradient-sealed-direct", (setting,))
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
        ("", f"{LINE}: security: node rank0 has no key; legal: key = "),
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
        (f"{BOTH}\nrotate_at = 0", f"{LINE + 2}: security.rotate_at: 0 is not legal; legal: a number of packets"),
        (f"{BOTH}\nrotate_guard = 6", f"{LINE + 2}: security.rotate_guard: does not go without rotate_at"),
        (
            f'key = "{KEY}"\nstart = "on"',
            f"{LINE + 2}: security.start: 'on' is not legal; legal: off, expected, random",
        ),
        (f'key = "{KEY}"\nplain = "no"', f"{LINE + 2}: security.plain: 'no' is not legal; legal: drop, pass"),
        (f'key = "{KEY}"\nepochs = 1', f"{LINE + 2}: security.epochs: unknown key; legal: sdi, mode, key"),
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
    with pytest.raises(LocalError, match="security: does not go with this transport"):
        load("gradient-roce", (f"security.key={KEY}",))


@pytest.mark.parametrize("digits", ["1" * 64, "0" * 64, "1" * 31 + "e" + "2" * 32])
def test_a_key_by_hand_may_look_like_a_number(digits: str) -> None:
    security = load("gradient-sealed-direct", (f"security.key={digits}",)).security
    assert security is not None
    assert security.domain.keys[0][0].value.hex() == digits


def test_the_mtu_has_room_for_the_seal() -> None:
    """§7.4: 4096 bytes make an IP packet of 4208, or of 4212 with SSI; in clear 4184."""
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
        "sealed": 13, "opened": 3, "refused": {}, "an": 1, "counters": {"in_auth_pkts": 3, "out_auth_pkts": 13},
    }  # fmt: skip
    wrong = CliRunner().invoke(cli, ["run", "gradient-sealed-direct", "--set", f"nodes.rank2.security.key={OTHER}"])
    assert wrong.exit_code == 1
    assert "packets of SDI 1 did not open" in wrong.output
    assert OTHER[:16] not in wrong.output
