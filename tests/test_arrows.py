"""Who may import whom: the arrows of the architecture, read from the imports."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "uetproto"

ARROWS = {  # part of the house -> the parts that it may import; `errors` is for everyone, `""` is uetproto/__init__.py
    "errors": set(),
    "wire": set(),
    "schemas": {"wire"},
    "layers": {"wire", "layers_base", "layers_fields", "layers_roce", "layers_sharp"},
    "layers_base": {"wire"},
    "layers_fields": {"wire"},
    "layers_roce": {"wire", "layers_base", "layers_fields"},
    "layers_sharp": {"wire", "layers_base", "layers_fields"},
    "columns": {"wire"},
    "wireshark": {"wire"},
    "engine": {"wire"},
    "check": {"engine", "wire"},
    "emulator": {"engine", "wire", "check"},
    "live": {"engine", "wire"},
    "collectives": set(),
    "api": {"engine", "collectives", "wire"},
    "examples": {"api", "collectives"},
    "traffic": {"engine", "wire", "emulator"},
    "audit": {"engine", "wire", "columns"},
    "cli": {"", "wire", "schemas", "layers", "columns", "wireshark", "engine", "check", "emulator", "live",
            "collectives", "api", "traffic", "audit"},
    "__main__": {"cli"},
    "": {"wire"},
}  # fmt: skip

BRIDGES = {
    **{f"api/{name}.py": {"emulator"} for name in ("world", "fi_node", "verbs_node")},
    "emulator/layouts.py": {"collectives"},
}
"""Single files that join two parts: the API stands on the emulator here, and nowhere else; the emulator's fabrics are
laid out by the topologies of the collectives."""

OWNERS = {  # third-party package -> the only places that may import it
    "fastcrc": ("wire/crc.py",),
    "construct": ("schemas.py",),
    "scapy": ("layers.py", "layers_base.py", "layers_fields.py", "layers_roce.py", "layers_sharp.py", "cli/bench.py"),
    "numpy": (
        "columns.py",
        "collectives/",
        "api/distributed",
        "examples/",
        "cli/bench.py",
        "engine/sharp_numeric.py",  # folds vectors in the arithmetic of the types, which Python has not
    ),
    "ml_dtypes": ("collectives/dtypes.py",),
    "cryptography": ("engine/uet_tss.py",),
    "click": ("cli/",),
    "rich": ("cli/",),
    "matplotlib": ("cli/collective_plot.py", "cli/audit_plot.py"),
    "pyarrow": ("audit/parquet.py",),
}

SANS_IO = {"time", "random", "socket", "asyncio"}  # never in `wire` and `engine`

FILES = sorted(ROOT.rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """The full names of all modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, f"{path}: imports are absolute"
            for alias in node.names:
                below = ROOT.parent.joinpath(*node.module.split("."), alias.name)
                is_module = below.is_dir() or below.with_suffix(".py").exists()
                yield f"{node.module}.{alias.name}" if is_module else node.module


def part(name: str) -> str:
    """The longest key of ARROWS that holds a file or a module: `wire` for wire/fields.py and for wire.fields.

    A file that no key holds belongs to the part of its own first name, which ARROWS does not know.
    """
    dotted = name.removesuffix(".py").replace("/", ".").removesuffix("__init__").removesuffix(".")
    steps = dotted.split(".")
    longest = (".".join(steps[:count]) for count in range(len(steps), 0, -1))
    return next((key for key in longest if key in ARROWS), steps[0])


def may(place: str, name: str) -> bool:
    """Whether the file at `place` (below uetproto/) may import the module `name`."""
    here = part(place)
    top, _, rest = name.partition(".")
    if top == ROOT.name:
        return part(rest) in ARROWS[here] | {here, "errors"} | BRIDGES.get(place, set())
    if top in sys.stdlib_module_names:
        return top not in SANS_IO or here not in ("wire", "engine")
    return place.startswith(OWNERS.get(top, ("nowhere",)))


def test_imports_follow_the_arrows() -> None:
    places = {str(path.relative_to(ROOT)): path for path in FILES}
    assert [place for place in places if part(place) not in ARROWS] == [], "parts that the architecture does not know"
    wrong = [f"{place} imports {name}" for place, path in places.items() for name in imported(path)
             if not may(place, name)]  # fmt: skip
    assert wrong == []


@pytest.mark.parametrize(
    ("place", "name", "allowed"),
    [
        ("wire/pcap.py", "uetproto.wire.fields", True),
        ("wire/pcap.py", "uetproto.errors", True),
        ("wire/pcap.py", "uetproto.engine.psn", False),
        ("wire/pcap.py", "uetproto", False),
        ("wire/pcap.py", "time", False),
        ("wire/pcap.py", "fastcrc.crc32", False),
        ("wire/crc.py", "fastcrc.crc32", True),
        ("engine/uet_pdc.py", "random", False),
        ("emulator/faults.py", "random", True),
        ("emulator/link.py", "uetproto.live.udp", False),
        ("live/udp.py", "uetproto.emulator.link", False),
        ("collectives/ring.py", "uetproto.engine.contract", False),
        ("collectives/ring.py", "numpy", True),
        ("engine/sharp_numeric.py", "numpy", True),
        ("engine/sharp_node.py", "numpy", False),
        ("columns.py", "numpy", True),
        ("emulator/trace.py", "numpy", False),
        ("layers.py", "scapy.packet", True),
        ("cli/ladder.py", "scapy.packet", False),
        ("cli/ladder.py", "uetproto", True),
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
        "from uetproto.wire import ethernet, crc32\n"
        "from uetproto import Packet, wire\n"
        "def late():\n    from uetproto.engine.contract import Rng\n"
        "if TYPE_CHECKING:\n    import scapy.all\n"
    )
    assert list(imported(file)) == [
        "os.path", "json", "uetproto.wire.ethernet", "uetproto.wire", "uetproto", "uetproto.wire",
        "uetproto.engine.contract", "scapy.all",
    ]  # fmt: skip
