# SPDX-License-Identifier: GPL-2.0-only
"""Who may import whom: the arrows of the architecture, read from the imports."""

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support import source

EVERYTHING = "*"

ARROWS: dict[str, set[str]] = {  # sub-package or module -> the packages and modules that it may import
    "errors": set(),  # which everyone may import
    "knobs": set(),  # how a parameter is declared: every configuration, and who reads or describes one, may import it
    "garbage": set(),  # how seldom long runs collect garbage
    "parquet": set(),  # tables as files: `audit`, `fabric`
    "system_memory": set(),  # blocks of zeros, and huge pages
    "textfile": set(),  # how a text file of the user is read: whoever reads one may import it
    "": {"analysis", "wire"},  # uetproto/__init__.py
    "__main__": {"cli"},
    # bytes
    "wire": {"wire"},
    "wire.headers": {"wire.fields"},
    "wire.capture": set(),
    "wire.mutate": {"wire"},
    "schemas": {"wire"},
    "arrow": set(),  # arrays of NumPy as tables of Arrow: `columns`, `tables`
    "columns": {"arrow", "columns_crc", "columns_records", "wire"},
    "columns_crc": {"wire"},
    "columns_records": {"wire"},
    "layers": {"wire"},
    "wireshark": {"wire"},
    "wireshark.extcap": {"cli"},  # the program that Wireshark starts: it runs commands
    # behaviour
    "engine.contract": {"wire"},
    "engine.train_splits": set(),  # the conditions under which a packet goes by itself: both transports, and networks
    # runs of packets that engines and drivers handle as one
    "engine.train": {"engine.contract", "engine.train_splits"},
    "engine.config": {"engine.contract", "wire"},
    "engine.memory": {"engine.contract", "wire"},
    "engine.pds": {"engine.contract", "engine.config", "engine.train", "engine.train_splits", "wire"},
    "engine.ses": {"engine.contract", "engine.config", "engine.memory", "engine.pds.service", "engine.train",
                   "engine.train_splits", "wire"},
    "engine.cc": {"engine.contract", "wire"},
    "engine.tss": {"engine.contract", "wire"},
    "engine.roce": {"engine.contract", "engine.memory", "engine.train", "engine.train_splits", "wire"},
    "engine.sharp": {"engine.contract", "wire"},
    **{f"engine.sharp.{name}": {"engine.contract", "wire",
                                *(f"engine.sharp.{shared}" for shared in (
                                    "config", "contract", "management", "messages", "numeric", "options",
                                    "state_tables", "trains"))}
       for name in ("node", "host", "manager")},
    "engine.sharp.carriers": {"engine.contract", "engine.sharp", "engine.roce", "engine.fep", "engine.pds",
                              "engine.train", "wire"},
    "engine": {"engine.contract", "engine.config", "engine.memory", "engine.pds", "engine.ses", "engine.train",
               "engine.train_splits", "wire"},
    "engine.states_text": {"engine.pds", "engine.ses", "engine.sharp", "wire"},
    "framing": {"engine.contract", "engine.train", "engine.tss", "engine.roce", "wire"},
    # what happens to frames on their way, without a clock or I/O: virtual time and real time share it
    "impair": {"framing", "engine.contract", "wire"},
    "steps": {"engine"},  # what scripts and the fuzzer share
    "check": {"check", "engine", "steps", "wire"},
    **{f"check.{name}": {*(f"check.{part}" for part in ("bytes_fuzz", "episode", "registry", "shrink", "simulator",
                                                        "step_generator", "toml_text", "wire")),
                             "engine", "steps", "wire"}
       for name in ("uet", "roce", "tss")},
    "audit": {"audit", "wire"},
    "audit.reader": {"audit.rule", "engine.tss", "wire"},
    **{f"audit.{name}": {"audit.reader", "audit.rule", "audit.judge", "audit.finding", "audit.flows", "audit.wire",
                         "audit.contract",  # what pds and ses know of each other
                         "engine.contract", "wire", *(["engine.tss"] if name == "tss" else []),
                         # windows of NSCC: its parameters, and the model that was written from cms.md
                         *(["check.cc.model", "engine.cc.config"] if name == "pds" else [])}
       for name in ("pds", "ses", "roce", "sharp", "tss", "wire")},
    "audit.stats": {"audit", "wire"},
    "audit.per_packet": {"wire"},
    # virtual time
    "emulator": set(),
    # fits congestion control to a network
    "emulator.congestion": {"emulator.network", "engine", "framing", "impair", "wire"},
    "emulator.network": {"framing", "engine.contract", "engine.train", "engine.train_splits", "collectives.topology",
                         "impair", "wire"},
    "emulator.flows": set(),
    "emulator.scenario": {"emulator.congestion", "emulator.flows", "emulator.network", "engine", "framing", "impair",
                          "steps", "toml", "wire"},
    "emulator.run": {"emulator", "check", "engine", "framing", "impair", "steps", "wire"},
    "toml": {"engine", "framing", "wire"},  # what keys take: scenarios, profiles, and the APIs for their arguments
    "traffic": {"emulator.network", "engine", "framing", "impair", "toml", "wire"},
    # studies of congestion; who calls the package calls analysis.commands.fabric
    "fabric": {"analysis.commands", "emulator.congestion", "emulator.flows", "emulator.network", "engine", "framing",
               "wire"},
    # real time: the same engines on sockets; never the emulator
    "live": {"engine", "framing", "impair", "wire"},
    "scapy": {"framing", "layers", "live", "wire"},  # packets of Scapy on a real link
    # tests of other implementations: their packets are made from tables, never by an engine
    "conform": {"audit", "conform", "diff", "engine.contract", "engine.tss",  # engine.tss: what keys seal and open;
                "framing",  # diff: whose numbers a PSN counts
                "live", "toml", "wire"},
    # programs
    "collectives": {"collectives"},
    "collectives.algorithms": {"collectives"},
    "collectives.costs": {"collectives"},
    "collectives.multicast": {"collectives"},
    "collectives.topology": {"collectives"},
    "api": {"emulator", "engine", "framing", "impair", "toml", "wire"},
    # api.checks: errors and checks of arguments that both APIs of endpoints share, each with its own error numbers
    "api.fi": {"api.checks", "api.network", "api.node", "api.places", "engine", "framing", "impair", "live", "toml",
               "wire"},
    "api.verbs": {"api.checks", "api.network", "api.node", "api.places", "engine", "framing", "impair", "live", "toml",
               "wire"},
    "api.distributed": {"api.distributed.networks", "collectives"},
    "api.distributed.networks": {"api", "collectives", "engine", "framing.sizes", "wire"},
    # live: the interface of a driver of conformance tests; analysis: a timeline reads its capture
    "examples": {"analysis.capture", "api", "collectives", "live"},
    # whoever tests an implementation of his own; nothing but cli imports it
    "testing": {"analysis.decoding", "api", "audit", "check", "collectives", "emulator", "engine", "framing", "impair",
                "testing", "toml", "wire", "steps", "cli.ladder"},  # a finding is shown as the ladder of the command
    "filters": {"audit.per_packet", "wire"},  # display filters
    "tables": {"analysis", "arrow", "columns", "filters", "wire"},  # captures as tables
    # the door for Python programs: captures, and the commands as functions
    "report": {"audit.finding", "cli.ladder", "wire"},  # a page of a capture
    "diff": {"audit.per_packet", "wire"},  # two captures; whose PDC a packet is of
    "analysis": {"audit", "cli.ladder", "diff", "report", "engine.tss", "filters", "tables", "wire", "arrow"},
    "analysis.commands": {EVERYTHING},
    # commands
    "cli": {EVERYTHING},
    "cli.audit": {EVERYTHING},
    "cli.collective": {EVERYTHING},
    "cli.diff": {EVERYTHING},
    "cli.ladder": {EVERYTHING},
    "cli.stats": {EVERYTHING},
    "bench": {EVERYTHING},
}  # fmt: skip
NOT_YET = {}
"""Imports that no arrow allows and that are still to be opened: (file, module). This list only gets shorter."""

OWNERS = {  # third-party package -> the only places that may import it
    "fastcrc": ("wire/crc.py",),
    "zstandard": ("wire/capture/compressed.py",),
    "lz4": ("wire/capture/compressed.py",),
    "construct": ("schemas/",),
    "scapy": ("layers/", "scapy.py", "bench/codec.py", "bench/frames.py", "bench/captures.py"),
    "numpy": (
        "arrow.py",
        "tables/",
        "columns.py",
        "columns_crc.py",
        "columns_records.py",
        "collectives/",
        "testing/machines/fabrics/collectives.py",
        "api/distributed",
        "examples/",
        "engine/sharp/numeric.py",  # folds vectors in the arithmetic of the types, which Python has not
    ),
    "ml_dtypes": ("collectives/dtypes.py",),
    "cryptography": ("engine/tss/cipher.py",),
    "hypothesis": ("testing/",),
    "pytest": ("testing/plugin.py",),
    "click": ("cli/", "bench/command.py"),
    "rich": ("cli/",),
    "matplotlib": (
        "cli/outputs.py",
        "cli/collective/plot.py",
        "cli/audit/plot.py",
        "cli/fabric/plot.py",
        "examples/timeline.py",
    ),
    "pyarrow": ("parquet.py", "arrow.py", "tables/files.py"),
    "polars": ("analysis/capture.py",),
    "pandas": ("analysis/capture.py",),
    "duckdb": ("tables/sql.py",),
}

SANS_IO = {"time", "random", "socket", "asyncio"}  # never in `wire` and `engine`
CLOCK = "live/time.py"  # the only place of `live` that knows what time it is


def imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The full names of all modules that these nodes of a syntax tree import."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, "imports are absolute"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if is_module(name) else node.module


@cache
def is_module(name: str) -> bool:
    """Whether the clone has a module or a package of this name."""
    below = source.ROOT.joinpath(*name.split("."))
    return below.is_dir() or below.with_suffix(".py").exists()


def part(name: str) -> str:
    """The longest key of ARROWS that holds a file or a module: `wire` for wire/crc.py and for wire.crc.

    A file that no key holds belongs to the part of its own first name, which ARROWS does not know.
    """
    steps = dotted(name).split(".")
    longest = (".".join(steps[:count]) for count in range(len(steps), 0, -1))
    return next((key for key in longest if key in ARROWS), steps[0])


def dotted(name: str) -> str:
    """The name of a module below `uetproto`, from its path there: "" for __init__.py, `wire` for wire/__init__.py."""
    return name.removesuffix(".py").replace("/", ".").removesuffix("__init__").removesuffix(".")


def may(place: str, name: str) -> bool:
    """Whether the file at `place` (below uetproto/) may import the module `name`."""
    here = part(place)
    top, _, rest = name.partition(".")
    if top == source.PACKAGE.name:
        ways = ARROWS[here] | {"errors", "garbage", "knobs", "parquet", "system_memory", "textfile"}
        return (
            part(rest) == here or EVERYTHING in ways or any(rest == way or rest.startswith(f"{way}.") for way in ways)
        )
    if top == "time" and here == "live":
        return place == CLOCK
    if top in sys.stdlib_module_names:
        return top not in SANS_IO or here.split(".")[0] not in ("wire", "engine", "framing")
    return place.startswith(OWNERS.get(top, ("nowhere",)))


def test_imports_follow_the_arrows() -> None:
    places = {str(path.relative_to(source.PACKAGE)): path for path in source.files()}
    assert [place for place in places if part(place) not in ARROWS] == [], "parts that the architecture does not know"
    wrong = [f"{place} imports {name}" for place, path in places.items() for name in imported(source.nodes(path))
             if not may(place, name) and (place, name) not in NOT_YET]  # fmt: skip
    assert wrong == []


@pytest.mark.parametrize(
    ("place", "name", "allowed"),
    [
        ("wire/crc.py", "uetproto.wire.fields", True),
        ("wire/capture/pcap.py", "uetproto.wire.fields", False),
        ("wire/capture/pcap.py", "uetproto.errors", True),
        ("wire/capture/pcap.py", "uetproto.engine.contract", False),
        ("wire/capture/pcap.py", "uetproto", False),
        ("wire/capture/pcap.py", "time", False),
        ("wire/capture/pcap.py", "fastcrc.crc32", False),
        ("wire/crc.py", "fastcrc.crc32", True),
        ("engine/pds/pdc.py", "random", False),
        ("engine/pds/pdc.py", "uetproto.engine.ses.headers", False),
        ("engine/ses/target.py", "uetproto.engine.pds.service", True),
        ("engine/ses/target.py", "uetproto.engine.pds.pdc", False),
        ("engine/fep.py", "uetproto.engine.pds.pdc", True),
        ("engine/roce/qp.py", "uetproto.engine.pds.pdc", False),
        ("emulator/network/build.py", "random", True),
        ("impair/faults.py", "uetproto.emulator.network.clock", False),
        ("emulator/network/nic.py", "uetproto.live.path_udp", False),
        ("live/driver.py", "uetproto.emulator.network.clock", False),
        ("live/driver.py", "uetproto.engine.contract", True),
        ("live/time.py", "time", True),
        ("live/driver.py", "time", False),
        ("api/fi/live.py", "uetproto.live.world", True),
        ("emulator/network/nic.py", "uetproto.emulator.run.play", False),
        ("collectives/algorithms/ring.py", "uetproto.engine.contract", False),
        ("collectives/algorithms/ring.py", "numpy", True),
        ("engine/sharp/numeric.py", "numpy", True),
        ("engine/sharp/node/aggregation_node.py", "numpy", False),
        ("columns.py", "numpy", True),
        ("emulator/network/trace.py", "numpy", False),
        ("layers/uet.py", "scapy.packet", True),
        ("cli/ladder/command.py", "scapy.packet", False),
        ("cli/ladder/command.py", "uetproto", True),
        ("errors.py", "uetproto.wire.crc", False),
        ("cli/run.py", "requests", False),
    ],
)
def test_the_rule_itself(place: str, name: str, allowed: bool) -> None:
    assert may(place, name) is allowed


def test_every_kind_of_import_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "any.py"
    file.write_text(
        "import os.path as p, json\n"
        "from uetproto.wire.headers import ethernet, Any\n"
        "from uetproto import Packet, wire\n"
        "def late():\n    from uetproto.engine.contract import Rng\n"
        "if TYPE_CHECKING:\n    import scapy.all\n"
    )
    assert list(imported(ast.walk(ast.parse(file.read_text())))) == [
        "os.path", "json", "uetproto.wire.headers.ethernet", "uetproto.wire.headers", "uetproto", "uetproto.wire",
        "uetproto.engine.contract", "scapy.all",
    ]  # fmt: skip
