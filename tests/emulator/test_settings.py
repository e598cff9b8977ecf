"""Scenario files: what is read, and how every fault is told: file, line, key, what is legal."""

from pathlib import Path

import pytest

from uetproto import LocalError
from uetproto.emulator.settings import SHIPPED, load, names
from uetproto.engine.contract import MILLISECOND, Mode

GRADIENT = (SHIPPED / "gradient.toml").read_text(encoding="utf-8")


def write(tmp_path: Path, text: str) -> str:
    (tmp_path / "gradient.npy").write_bytes((SHIPPED / "gradient.npy").read_bytes())
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def refusal(tmp_path: Path, old: str, new: str) -> str:
    """The message for the gradient with one change, without the folder."""
    assert old in GRADIENT
    with pytest.raises(LocalError) as caught:
        load(write(tmp_path, GRADIENT.replace(old, new)))
    return str(caught.value).removeprefix(f"{tmp_path}/")


def test_shipped() -> None:
    assert {"gradient", "gradient-1024", "gradient-rud", "gradient-lossy"} <= set(names())
    for name in names():
        assert load(name).name == name


def test_gradient_is_that_of_the_page() -> None:
    """ses.md §8.1, interfaces.md §5."""
    scenario = load("gradient")
    run, fabric = scenario.run, scenario.fabric
    assert (run.job_id, run.key, run.resource_index, run.initiator_id) == (101, 0x0001000000000007, 15, 0)
    assert (run.mode, run.relative, run.base, run.offset, run.close) == (Mode.ROD, True, 0, None, True)
    assert (fabric.rate, fabric.delay, fabric.mtu) == (400 * 10**9, 1_000_000, 9216)
    assert (fabric.how.udp, fabric.how.crc) == (True, True)
    first, second = scenario.nodes.values()
    assert (first.address, second.address) == (0x0A00000B, 0x0A00010B)
    assert first.preset.start_psn == 0x12000
    assert first.ses.payload_mtu == 4096
    assert scenario.taps == ("rank0",)
    assert not scenario.faults


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('mode = "rod"', 'mode = "ROD"', "mine.toml:7: run.mode: 'ROD' is not legal; legal: rod, rud"),
        (
            "job_id = 101",
            "job_id = 16777216",
            "mine.toml:10: run.job_id: 16777216 is not legal; legal: a whole number, 0",
        ),
        ("job_id = 101", "job_id = true", "mine.toml:10: run.job_id: True is not legal"),
        ("job_id = 101", "job = 101", "mine.toml:10: run.job: unknown key; legal: description, seed, input, mode"),
        ("relative = true", 'relative = "yes"', "mine.toml:15: run.relative: 'yes' is not legal; legal: true, false"),
        (
            'rate = "400 Gb/s"',
            'rate = "400 GB"',
            "mine.toml:19: fabric.rate: '400 GB' is not legal; legal: bits a second",
        ),
        (
            'delay = "1 us"',
            'delay = "0.1 ps"',
            "mine.toml:20: fabric.delay: '0.1 ps' is not legal; legal: a time such as",
        ),
        ('delay = "1 us"', "delay = 1.5", "mine.toml:20: fabric.delay: 1.5 is not legal"),
        ('crc = "on"', 'crc = "auto"', "mine.toml:23: fabric.crc: 'auto' is not legal; legal: on, off"),
        (
            "mtu = 9216",
            "mtu = 4096",
            "mine.toml:32: ses.payload_mtu: a payload of 4096 bytes makes an IP packet of 4184",
        ),
        (
            "payload_mtu = 4096",
            "payload_mtu = 1000",
            "mine.toml:32: ses.payload_mtu: 1000 is not legal; legal: 1024, 2048",
        ),
        ('address = "10.0.1.11"', 'address = "10.0.1"', "mine.toml:29: nodes.rank2.address: '10.0.1' is not legal"),
        (
            'address = "10.0.1.11"',
            'address = "fd00::1"',
            "mine.toml:29: nodes.rank2.address: is IPv6, but that of rank0",
        ),
        ('address = "10.0.1.11"', 'address = "10.0.0.11"', "mine.toml:29: nodes.rank2.address: has the same last four"),
        ('address = "10.0.1.11"', "", "mine.toml:28: nodes.rank2: address is missing; legal: an IPv4 or IPv6 address"),
        ('target = "rank2"', 'target = "rank1"', "mine.toml:9: run.target: no such node: 'rank1'; legal: rank0, rank2"),
        ('target = "rank2"', 'target = "rank0"', "mine.toml:9: run.target: is the initiator"),
        ("[ses]", "[sess]", "mine.toml:31: sess: unknown section; legal: run, fabric, nodes"),
        ("[preset.rank0]", "[preset.rank1]", "mine.toml:34: preset.rank1: no such node; legal: rank0, rank2"),
        ("start_psn = 0x12000", "start_psn = -1", "mine.toml:35: preset.rank0.start_psn: -1 is not legal"),
        (
            "[ses]",
            "[pds]\nrto_init_time = 9000000000000\n[ses]",
            "mine.toml:32: pds.rto_init_time: 9000000000000 is not",
        ),
        ("[ses]", "[pds]\nrto_time = 9\n[ses]", "mine.toml:32: pds.rto_time: unknown key; legal: default_mpr"),
        ("[ses]", "[security]\n[ses]", "mine.toml:31: security: this section is not supported yet"),
        ("[ses]", "[roce]\n[ses]", "mine.toml:31: roce: this section is not supported yet"),
        ("[ses]", "[qp.one]\n[ses]", "mine.toml:31: qp: this section is not supported yet"),
        (
            "[ses]",
            "[faults]\ndrop = 1.5\n[ses]",
            "mine.toml:32: faults.drop: 1.5 is not legal; legal: a share 0 … 1, or a",
        ),
        ("[ses]", "[faults]\ndrop = [-1]\n[ses]", "mine.toml:32: faults.drop: [-1] is not legal"),
        ("[ses]", '[faults]\nfrom = ["x"]\n[ses]', "mine.toml:32: faults.from: no such node: 'x'; legal: all, rank0"),
        (
            "[ses]",
            '[tap]\nnodes = ["x"]\n[ses]',
            "mine.toml:32: tap.nodes: no such node: 'x'; legal: all, rank0, rank2",
        ),
        ("[ses]", "[fabric.x]\n[ses]", "mine.toml:31: fabric.x: unknown key"),
        ('input = "gradient.npy"', "", "mine.toml:3: run: input is missing; legal: the path of a .npy file"),
        (
            "[preset.rank0]\nstart_psn = 0x12000",
            "[preset]\nrank0 = 5",
            "mine.toml:35: preset.rank0: is a value; legal: the",
        ),
        (
            "key = 0x0001000000000007",
            "key = 0x0100000000000007",
            "mine.toml:14: run.key: 0x100000000000007 is not legal",
        ),
        ("[nodes.rank2]", "[nodes.rank0.pds]", "mine.toml:25: nodes: there must be two nodes at least"),
    ],
)
def test_refusals(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert refusal(tmp_path, old, new).startswith(message)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("mode=fast", "--set run.mode: 'fast' is not legal; legal: rod, rud"),
        ("payload_mtu=999", "--set ses.payload_mtu: 999 is not legal; legal: 1024, 2048, 4096, 8192"),
        ("payload_mtu=many", "--set ses.payload_mtu: 'many' is not legal; legal: 1024, 2048, 4096, 8192"),
        ("ses.max_msg_size=1 ms", "--set ses.max_msg_size: '1 ms' is not legal; legal: 1 … 4294967295"),
        ("pds.rto_init_time=9 s", "--set pds.rto_init_time: 9000000000000 is not legal; legal: 0 … 8000000000000"),
        ("pds.rto_init_time=1 xs", "--set pds.rto_init_time: '1 xs' is not legal; legal: a time such as "),
        ("pds.nonsense=1", "--set pds.nonsense: unknown key; legal: default_mpr"),
        ("nonsense=1", "--set nonsense: needs a section, as in pds.nonsense; without one: input, payload_mtu, mode"),
        ("mode", "--set mode: legal is key=value"),
        ("nowhere.key=1", "--set nowhere.key: nowhere: unknown section; legal: run, "),
        ("run.mode.x=1", "--set run.mode.x: mode is not a table"),
        (
            "fabric.mtu=2000",
            "--set fabric.mtu: a payload of 4096 bytes makes an IP packet of 4184, the link's mtu is 2000",
        ),
        ("seed=-1", "--set run.seed: -1 is not legal"),
    ],
)
def test_refusals_by_hand(setting: str, message: str) -> None:
    with pytest.raises(LocalError) as caught:
        load("gradient", [setting])
    assert str(caught.value).startswith(message)


def test_sections_that_are_no_tables(tmp_path: Path) -> None:
    nodes = '[nodes.a]\naddress = "10.0.0.1"\n[nodes.b]\naddress = "10.0.0.2"\n'
    for name in ("run", "fabric", "pds", "ses", "faults", "tap", "preset", "step"):
        with pytest.raises(LocalError, match=rf"mine.toml:1: {name}: is a"):
            load(write(tmp_path, f"{name} = 5\n" + nodes + ("" if name == "run" else '[run]\ninput = "x"\n')))
    with pytest.raises(LocalError, match=r"mine.toml:1: nodes: there must be two"):
        load(write(tmp_path, "nodes = 5\n"))


def test_settings() -> None:
    scenario = load(
        "gradient",
        [
            "payload_mtu=1024", "mode=rud", "crc=off", "encapsulation=native", "seed=7", "input=123",
            "pds.rto_init_time=0.5 ms", "pds.ar_on_eom=off", "faults.drop=[1, 2]", "faults.duplicate=0.25",
            "tap.nodes=all", "nodes.rank2.pds.mp_range=128", "fabric.rate=100 Gb/s", "preset.rank2.pdcid=9",
        ],
    )  # fmt: skip
    run, fabric = scenario.run, scenario.fabric
    first, second = scenario.nodes.values()
    assert (run.mode, run.seed, run.input) == (Mode.RUD, 7, Path("123"))
    assert (fabric.how.udp, fabric.how.crc, fabric.rate) == (False, False, 10**11)
    assert (first.pds.rto_init_time, first.pds.ar_on_eom) == (MILLISECOND // 2, False)
    assert (first.pds.mp_range, second.pds.mp_range) == (1024, 128)
    assert (first.ses.payload_mtu, second.preset.pdcid) == (1024, 9)
    assert (scenario.faults.drop, scenario.faults.duplicate) == (frozenset((1, 2)), 0.25)
    assert scenario.taps == ("rank0", "rank2")


def test_not_toml(tmp_path: Path) -> None:
    for text, message in (
        ("[run]\nseed = x\n", r"mine.toml:2: Invalid value; legal: TOML, .*; here: seed = x"),
        ("[run]\nseed = 1\nseed = 2\n", r"mine.toml:3: Cannot overwrite a value; .* once; here: seed = 2"),
        ("seed = " + "9" * 5000, "mine.toml:1: Exceeds the limit"),
        ("seed = " + "[" * 5000, "mine.toml:1: maximum recursion depth"),
        ("[run]\nseed = 1\n[run", r"mine.toml:3: .* \(at end of document\); legal: TOML"),
    ):
        with pytest.raises(LocalError, match=message):
            load(write(tmp_path, text))


def test_not_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"[run]\nseed = 1 # \xff\n")
    with pytest.raises(LocalError, match=r"mine.toml:2: byte 0xff is not UTF-8"):
        load(str(path))


def test_unknown_name_tells_the_shipped() -> None:
    with pytest.raises(LocalError, match="no such scenario; shipped are gradient, gradient-1024"):
        load("gradiant")
    with pytest.raises(FileNotFoundError):
        load("./nowhere.toml")
