# SPDX-License-Identifier: GPL-2.0-only
"""Scenario files: what is read, and how every fault is told: file, line, key, what is legal."""

from pathlib import Path

import pytest

from uetproto import LocalError
from uetproto.check.wire import ALL
from uetproto.emulator.scenario.settings import SHIPPED, load, names
from uetproto.engine.config import PERSONALITIES, PdsConfig, SesConfig
from uetproto.engine.contract import MILLISECOND, SECOND, Mode
from uetproto.steps.uet import MessageSpec, UetStep

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
    run, fabric, how = scenario.run, scenario.fabric, scenario.encapsulation
    assert (run.job_id, run.key, run.resource_index, run.initiator_id) == (101, 0x0001000000000007, 15, 0)
    assert (run.mode, run.relative, run.base, run.offset, run.close) == (Mode.ROD, True, 0, None, True)
    assert (fabric.rate, fabric.delay, fabric.mtu) == (400 * 10**9, 1_000_000, 9216)
    assert (how.udp, how.crc) == (True, True)
    first, second = scenario.nodes.values()
    assert (first.address, second.address) == (0x0A00000B, 0x0A00010B)
    assert first.preset.start_psn == 0x12000
    assert first.ses.payload_mtu == 4096
    assert scenario.taps == ("rank0",)
    assert not scenario.faults


A_TIME = 'a time such as "1 ms" (ps, ns, us, ms, s, min)'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'mode = "rod"',
            'mode = "ROD"',
            "mine.toml:7: run.mode: 'ROD' is not legal (did you mean rod?); legal: rod, rud",
        ),
        (
            "job_id = 101",
            "job_id = 16777216",
            "mine.toml:10: run.job_id: 16777216 is not legal; legal: a whole number, 0",
        ),
        ("job_id = 101", "job_id = true", "mine.toml:10: run.job_id: True is not legal"),
        (
            "job_id = 101",
            "job = 101",
            "mine.toml:10: run.job: unknown key (did you mean job_id?); legal: description, seed, input, … (",
        ),
        ("relative = true", 'relative = "yes"', "mine.toml:15: run.relative: 'yes' is not legal; legal: true, false"),
        (
            'rate = "400 Gb/s"',
            'rate = "400 GB"',
            "mine.toml:19: fabric.rate: '400 GB' is not legal; legal: a rate such as",
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
        (
            'target = "rank2"',
            'target = "rank1"',
            "mine.toml:9: run.target: no such node: 'rank1' (did you mean rank2 or rank0?); legal: ra",
        ),
        ('target = "rank2"', 'target = "rank0"', "mine.toml:9: run.target: is the initiator"),
        ("[ses]", "[sess]", "mine.toml:31: sess: unknown section (did you mean ses?); legal: run, fabric, nodes"),
        (
            "[preset.rank0]",
            "[preset.rank1]",
            "mine.toml:34: preset.rank1: no such node (did you mean rank2 or rank0?); legal: rank0, rank2",
        ),
        ("start_psn = 0x12000", "start_psn = -1", "mine.toml:35: preset.rank0.start_psn: -1 is not legal"),
        (
            "[ses]",
            "[pds]\nrto_init_time = 9000000000000\n[ses]",
            "mine.toml:32: pds.rto_init_time: 9000000000000 is not",
        ),
        ("[ses]", "[pds]\nrto_time = 9\n[ses]", "mine.toml:32: pds.rto_time: unknown key (did you mean rto_init_time"),
        ("[ses]", "[security]\n[ses]", "mine.toml:31: security: SDI 1 has no key for node rank0; legal: key = "),
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
        ("mode=fast", "settings run.mode: 'fast' is not legal; legal: rod, rud"),
        ("payload_mtu=999", "settings ses.payload_mtu: 999 is not legal; legal: 1024, 2048, 4096, 8192"),
        ("payload_mtu=many", "settings ses.payload_mtu: 'many' is not legal; legal: 1024, 2048, 4096, 8192"),
        ("ses.max_msg_size=1 ms", "settings ses.max_msg_size: '1 ms' is not legal; legal: bytes, or a text such as"),
        ("pds.rto_init_time=9 s", "settings pds.rto_init_time: 9000000000000 is not legal; legal: 0 … 8000000000000"),
        ("pds.rto_init_time=1 xs", "settings pds.rto_init_time: '1 xs' is not legal; legal: a time such as "),
        (
            "pds.tail_loss_time=1 xs",
            f"settings pds.tail_loss_time: '1 xs' is not legal; legal: {A_TIME}, 0 ps … 10 ms",
        ),
        (
            "run.time_limit=0",
            f"settings run.time_limit: 0 is not legal; legal: {A_TIME}, 1 ps … 86400 s",
        ),
        (
            "nodes.b.pds.msl=1",
            "settings nodes.b.pds.msl: no such node: b; legal: rank0, rank2; a new one is a whole table, settings 'no",
        ),
        (
            "nodes.rankk.address=10.0.0.9",
            "settings nodes.rankk.address: no such node: rankk (did you mean rank2 or rank0?); legal: rank0, rank2; a",
        ),
        ("preset.rank1.start_psn=1", "settings preset.rank1.start_psn: no such node: rank1 (did you mean rank"),
        ('nodes.x={rate = "5 Gb/s"}', "settings nodes.x: address is missing; legal: an IPv4 or IPv6 address"),
        ("pds.mp_rnge=1", "settings pds.mp_rnge: unknown key (did you mean mp_range"),
        ("pds.rto_init_time=5", f"settings pds.rto_init_time: 5 has no unit; legal: {A_TIME}, 0 ps … 8 s"),
        ("fabric.delay=5", f"settings fabric.delay: 5 has no unit; legal: {A_TIME}, 0 ps … 86400 s"),
        (
            "fabric.rate=400",
            'settings fabric.rate: 400 has no unit; legal: a rate such as "400 Gb/s" (b/s, kb/s, Mb/s, Gb/s',
        ),
        ("nodes.x={rate = 5}", "settings nodes.x: nodes.x.rate: 5 has no unit"),
        ("fabrik.rate=1", "settings fabrik.rate: fabrik: unknown section (did you mean fabric?); legal: run, fabric, "),
        ("pds.nonsense=1", "settings pds.nonsense: unknown key; legal: default_mpr"),
        (
            "nonsense=1",
            "settings nonsense: needs a section, as in pds.nonsense; legal: without a section: input, payload_mtu",
        ),
        ("mode", "settings mode: legal is key=value"),
        ("nowhere.key=1", "settings nowhere.key: nowhere: unknown section; legal: run, "),
        ("run.mode.x=1", "settings run.mode.x: mode is not a table"),
        (
            "fabric.mtu=2000",
            "settings fabric.mtu: a payload of 4096 bytes makes an IP packet of 4184, the link's mtu is 2000",
        ),
        ("seed=-1", "settings run.seed: -1 is not legal"),
    ],
)
def test_refusals_by_hand(setting: str, message: str) -> None:
    with pytest.raises(LocalError) as caught:
        load("gradient", [setting])
    assert str(caught.value).startswith(message)


def test_a_node_or_queue_pair_is_added_on_purpose() -> None:
    """A key of a table that does not exist adds none; the whole table does."""
    scenario = load("gradient", ['nodes.new={address = "10.0.0.9"}', "nodes.new.rate=100 Gb/s"])
    assert (list(scenario.nodes), scenario.nodes["new"].rate) == (["rank0", "rank2", "new"], 100 * 10**9)
    with pytest.raises(LocalError, match=r"settings qp.rank1.number: no such queue pair: rank1 \(did you mean rank2"):
        load("roce-fail-key", ["qp.rank1.number=5"])
    assert load("roce-fail-key", ["qp.rank0.number=0x55"]).qps["rank0"].number == 0x55


def test_sections_that_are_no_tables(tmp_path: Path) -> None:
    nodes = '[nodes.a]\naddress = "10.0.0.1"\n[nodes.b]\naddress = "10.0.0.2"\n'
    for name in ("run", "fabric", "pds", "ses", "faults", "tap", "preset", "step", "operation"):
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
    run, fabric, how = scenario.run, scenario.fabric, scenario.encapsulation
    first, second = scenario.nodes.values()
    assert (run.mode, run.seed, run.input) == (Mode.RUD, 7, Path("123"))
    assert (how.udp, how.crc, fabric.rate) == (False, False, 10**11)
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
    with pytest.raises(
        LocalError, match=r"gradiant: no such scenario \(did you mean gradient.*\); legal: gradient, gradient-1024"
    ):
        load("gradiant")
    with pytest.raises(FileNotFoundError):
        load("./nowhere.toml")


# Personalities and parameters of a node (observed.md, pds.md §17, §20) ------------------------------------------------


def test_personality_of_one_node() -> None:
    """All of observed.md for that node, nothing for the other."""
    first, second = load("gradient", ["nodes.rank2.personality=refprov", "payload_mtu=1024"]).nodes.values()
    refprov = PERSONALITIES["refprov"]
    assert first.pds == PdsConfig()
    assert second.pds == PdsConfig(**refprov["pds"])
    assert second.ses == SesConfig(**refprov["ses"])


def test_a_single_key_beside_a_personality_wins() -> None:
    scenario = load(
        "gradient",
        [
            "nodes.rank0.personality=refprov", "nodes.rank2.personality=refprov", "payload_mtu=1024",
            "pds.clear_cmd=timer", "nodes.rank2.pds.clear_cmd=immediate", "nodes.rank2.pds.cp_isrod=mode",
        ],
    )  # fmt: skip
    first, second = (node.pds for node in scenario.nodes.values())
    assert (first.clear_cmd, first.cp_isrod, first.closing_ack) == ("timer", "zero", "before_close_psn")
    assert (second.clear_cmd, second.cp_isrod, second.closing_ack) == ("immediate", "mode", "before_close_psn")


@pytest.mark.parametrize(
    ("setting", "name", "value"),
    [
        ("pdcid_quarantine=0", "pdcid_quarantine", 0),
        ("pdcid_quarantine=MSL", "pdcid_quarantine", "MSL"),
        ("store_ack_read_data=off", "store_ack_read_data", False),
        ("cp_mode_check=false", "cp_mode_check", False),
        ("spec_revision=1.0.1", "spec_revision", "1.0.1"),
        ("new_pdc_time=10 s", "new_pdc_time", 10 * SECOND),
        ("tail_loss_time=1.5 ms", "tail_loss_time", 3 * MILLISECOND // 2),
        ("mp_range=32640", "mp_range", 32640),
    ],
)
def test_a_parameter_of_a_node(setting: str, name: str, value: object) -> None:
    first, second = load("gradient", [f"nodes.rank2.pds.{setting}"]).nodes.values()
    assert getattr(first.pds, name) == getattr(PdsConfig(), name)
    assert getattr(second.pds, name) == value


def test_parameters_that_only_together_are_legal() -> None:
    """All PDCIDs for ordinary PDCs: only without reserved ones."""
    settings = ["nodes.rank0.pds.max_pdcs=65535", "nodes.rank0.pds.reserved_pdcs=0"]
    assert load("gradient", settings).nodes["rank0"].pds.max_pdcs == 65535
    with pytest.raises(LocalError, match=r"settings nodes.rank0.pds.max_pdcs: 65535 and reserved_pdcs 16 are more"):
        load("gradient", settings[:1])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "nodes.rank0.personality=linux",
            "settings nodes.rank0.personality: 'linux' is not legal; legal: default, refprov",
        ),
        ("pds.mp_range=32768", "settings pds.mp_range: 32768 is not legal; legal: 128 … 32640 in steps of 128"),
        ("pds.mp_range=200", "settings pds.mp_range: 200 is not legal; legal: 128 … 32640 in steps of 128"),
        (
            "pds.spec_revision=1.0.3",
            "settings pds.spec_revision: '1.0.3' is not legal (did you mean 1.0.1?); legal: 1.0.1",
        ),
        ("pds.pdcid_quarantine=1", "settings pds.pdcid_quarantine: 1 is not legal; legal: MSL, 0"),
        ("pds.ar_on_eom=maybe", "settings pds.ar_on_eom: 'maybe' is not legal; legal: True, False"),
        (
            "nodes.rank2.pds.sack_base=newest",
            "settings nodes.rank2.pds.sack_base: 'newest' is not legal; legal: ",
        ),
        ("mode=uud", "settings run.mode: 'uud' is not legal for the WRITE of this run; legal: rod, rud; with ses"),
        ("mode=rudi", "settings run.mode: 'rudi' is not legal for the WRITE of this run; legal: rod, rud; with ses"),
        ("preset.rank0.expected_psn=9000", "settings preset.rank0.expected_psn: is not legal without secure_start"),
        ("preset.rank0.ack_gen_count=9", "settings preset.rank0.ack_gen_count: a PDC in the middle of its life also"),
    ],
)
def test_refusals_of_parameters(setting: str, message: str) -> None:
    with pytest.raises(LocalError) as caught:
        load("gradient", [setting])
    assert str(caught.value).startswith(message)


# Scripts with scripted SES (interfaces.md §5) -------------------------------------------------------------------------

SCRIPTED = """\
[run]
ses = "scripted"
mode = "rud"
[nodes.a]
address = "10.0.0.1"
[nodes.b]
address = "10.0.0.2"
"""


def script(tmp_path: Path, rows: str, head: str = SCRIPTED) -> list[UetStep]:
    """The steps that rows stand for; one row a line, what is behind a semicolon belongs to it."""
    steps = "".join("[[step]]\n" + row.strip().replace("; ", "\n") + "\n" for row in rows.strip().splitlines())
    return [row.step for row in load(write(tmp_path, head + steps)).script]


@pytest.mark.parametrize(
    ("row", "steps"),
    [
        ("submit = 3", [UetStep("submit", 0, message=MessageSpec(3))]),
        (
            'submit = 1; node = "b"; message = 88; mode = "rod"; op = "read"; answer = "data"; reserved = true',
            [UetStep("submit", 1, message=MessageSpec(1, Mode.ROD, "read", 88, "data", True))],
        ),
        ('submit = 1; op = "read"', [UetStep("submit", 0, message=MessageSpec(1, op="read", answer="return"))]),
        ('submit = 1; mode = "uud"', [UetStep("submit", 0, message=MessageSpec(1, Mode.UUD))]),
        ('submit = 2; mode = "rudi"; op = "write"', [UetStep("submit", 0, message=MessageSpec(2, Mode.RUDI, "write"))]),
        ("allow = 1", [UetStep("allow", 0, 1)]),
        ('allow = "all"; node = "b"', [UetStep("allow", 1, ALL)]),
        ("deliver = 2", [UetStep("deliver", number=2)]),
        ("deliver = [2, 0]", [UetStep("deliver", number=2), UetStep("deliver", number=0)]),
        ('drop = "all"', [UetStep("drop", number=ALL)]),
        ("dup = 1", [UetStep("dup", number=1)]),
        ("trim = 1", [UetStep("trim", number=1)]),
        ("mark = 1", [UetStep("mark", number=1)]),
        ("corrupt = 1; at = 60", [UetStep("corrupt", number=1, at=60)]),
        ('advance = "1 ms"', [UetStep("advance", number=MILLISECOND)]),
        ("respond = 333; gtd = true", [UetStep("respond", 1, 333, answer="gtd")]),
        ('respond = 333; answer = "later"; node = "a"', [UetStep("respond", 0, 333, answer="later")]),
        ('respond = 333; code = "NO_PKT_BUFFER"', [UetStep("respond", 1, 333, answer="no_pkt_buffer")]),
        ('close = "a"', [UetStep("close", 0)]),
        ('ask_close = "b"', [UetStep("ask_close", 1)]),
        ('noop = "b"', [UetStep("noop", 1)]),
        ('probe = "a"', [UetStep("probe", 0)]),
        ('restart = "b"', [UetStep("restart", 1)]),
        ('negotiate = 7; node = "b"', [UetStep("negotiate", 1, 7)]),
        ("ask_credit = 100", [UetStep("ask_credit", 0, 100)]),
        ("give_credit = 100", [UetStep("give_credit", 1, 100)]),
        ("lose = 333", [UetStep("lose", 1, 333)]),
        ('inject = "58 20 00"', [UetStep("inject", 1, data=bytes.fromhex("582000"))]),
    ],
)
def test_rows(tmp_path: Path, row: str, steps: list[UetStep]) -> None:
    assert script(tmp_path, row) == steps


def test_messages_are_numbered(tmp_path: Path) -> None:
    steps = script(tmp_path, "submit = 1\nsubmit = 1\nsubmit = 1; message = 9\nsubmit = 1")
    assert [step.message and step.message.message_id for step in steps] == [1, 2, 9, 4]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("submit = 0", ":9: step.0.submit: 0 is not legal; legal: a whole number, 1 … 65536"),
        ('submit = 1; op = "atomic"', ":10: step.0.op: 'atomic' is not legal; legal: send, read, write"),
        ('submit = 1; node = "c"', ":10: step.0.node: no such node: 'c'; legal: a, b"),
        ('submit = 1; mode = "rudi"', ":8: step.0: op 'send' is not legal with mode rudi; legal: read, write"),
        ('submit = 1; mode = "uud"; op = "write"', ":8: step.0: op 'write' is not legal with mode uud; legal: send"),
        ('submit = 2; mode = "uud"', ":9: step.0.submit: 2 is not legal with mode uud; legal: 1"),
        ('submit = 1; answer = "data"', ":10: step.0.answer: 'data' is not legal with op send; legal: ok, gtd, later"),
        ('close = "c"', ":9: step.0.close: no such node: 'c'; legal: a, b"),
        ("close = 1", ":9: step.0.close: 1 is not legal; legal: a text"),
        ("respond = 333", ":8: step.0: says no answer; legal: one of answer, gtd, code"),
        ('respond = 333; gtd = true; code = "OK"', ":8: step.0: says gtd and code; legal: one of answer, gtd, code"),
        (
            'respond = 333; code = "NO_PDC_AVAIL"',
            ":10: step.0.code: 'NO_PDC_AVAIL' is not legal (did you mean NO_GTD_DEL_AVAIL?); legal: OK, ",
        ),
        ('inject = "5"', ":9: step.0.inject: '5' is not legal; legal: bytes in hex"),
        ("deliver = 1; at = 5", ":10: step.0.at: does not go with deliver"),
        ("corrupt = 1", ":8: step.0: corrupt needs at; legal: a whole number, 0 … 65535"),
        (
            'advance = "2 d"',
            f":9: step.0.advance: '2 d' is not legal; legal: {A_TIME}, 0 ps … 86400 s",
        ),
        ("deliver = 1; drop = 1", ":8: step.0: has 2 actions; legal: one of submit, allow, deliver"),
    ],
)
def test_refusals_of_rows(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(LocalError) as caught:
        script(tmp_path, row)
    assert str(caught.value).removeprefix(f"{tmp_path}/").startswith(f"mine.toml{message}")


def test_rudi_of_the_run_holds_for_its_messages(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"step\.0: op 'send' is not legal with mode rudi; legal: read, write"):
        script(tmp_path, "submit = 1", SCRIPTED.replace('"rud"', '"rudi"'))


def test_a_script_needs_rows_and_two_nodes(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"run.input: does not go with ses = 'scripted': its steps make the data up"):
        load("gradient", ["run.ses=scripted"])
    with pytest.raises(LocalError, match=r"mine.toml:2: run.ses: 'scripted' needs rows \[\[step\]\]"):
        load(write(tmp_path, SCRIPTED))
    with pytest.raises(LocalError, match=r"mine.toml:2: run.ses: 'scripted' has two nodes, here are 3"):
        script(tmp_path, "submit = 1", SCRIPTED + '[nodes.c]\naddress = "10.0.0.3"\n')


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("gradient", "nodes.rank0.data_path=rdma", "does not go with uet: data paths are those of RoCE"),
        ("gradient", "nodes.rank0.roce.path_mtu=1024", "does not go with this transport; run.transport may be rc, uc"),
        ("gradient", "roce.path_mtu=1024", "does not go with this transport; run.transport may be rc, uc, ud"),
        ("gradient-roce", "nodes.rank0.ses.payload_mtu=1024", "run.transport may be uet; the payload of a packet is"),
        ("gradient-roce", "nodes.rank0.pds.max_rto_retx_cnt=1", "does not go with this transport"),
        ("gradient", "path.pcie_bandwidth=3 Gb/s", "path: has no effect: no node has a data_path"),
        ("gradient-roce", "path.pcie_bandwidth=3 Gb/s", "path: has no effect: no node has a data_path"),
        ("gradient", "run.payload=63", "run.payload: goes with ses = 'scripted'"),
        ("roce-uc-write", "run.source_base=5", "run.source_base: does not go with rows [[operation]]"),
        ("gradient", "faults.reorder_by=3", "has no effect without faults.reorder"),
        ("gradient", "faults.reorder_time=3 ps", "has no effect without faults.reorder"),
        ("gradient", "faults.delay_time=3 ps", "has no effect without faults.delay"),
    ],
)
def test_what_would_have_no_effect_is_refused(name: str, setting: str, message: str) -> None:
    with pytest.raises(LocalError) as caught:
        load(name, [setting])
    assert message in str(caught.value)
