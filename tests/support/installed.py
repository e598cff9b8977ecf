# SPDX-License-Identifier: GPL-2.0-only
"""This program checks an installation of uetproto: it runs one command of each kind, and looks for each kind of file.

`PYTHON -I installed.py VERSION [--extras] [--apart]` runs in an empty folder, with the Python that has uetproto
installed, and imports nothing of the tree that it lies in. It prints what is missing or fails, a line each; exit
status 1 if there is any. `--extras`: the extra `all` is installed, too. `--apart`: each command is a process of its
own.
"""

import contextlib
import importlib.metadata
import importlib.util
import io
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

COMMANDS = (  # arguments, and what standard output has to contain
    ("run gradient -o g.pcapng", "capture g.pcapng"),
    ("run ladder-L02 -o lossy.pcapng", "capture lossy.pcapng"),
    ("run gradient-roce --json", '"match": true'),
    ("scenario list ladder-*", "ladder-L30"),
    ("scenario new mine.toml", "mine.toml"),
    ("run mine.toml", "match"),
    ("generate mixed -o m.pcapng --packets 200", "mixed: 200 packets"),
    ("generate roce-mixed -o rm.pcapng --packets 200", "roce-mixed: 200 packets"),
    ("dissect g.pcapng --count 1", "ROD_REQ SYN PSN 73728"),
    ("ladder g.pcapng --svg g.svg", ""),
    ("audit g.pcapng --complete", "no findings in 7 packets"),
    ("audit --explain PDS-WINDOW-EXCEEDED", "warning"),
    ("stats g.pcapng", "7 packets"),
    ("diff g.pcapng g.pcapng", "no difference"),
    ("report g.pcapng -o g.html", "7 packets"),
    ("wireshark path", "uetproto.lua"),
    ("wireshark install --dir plugins", "uetproto.lua"),
    ("fuzz --steps 60 --seed 1 --jobs 1", "no findings"),
    ("fuzz cc --steps 60 --seed 1 --jobs 1", "no findings"),
    ("collective all_reduce --ranks 4", "result equals NumPy's"),
    ("fabric incast --hosts 4 --flow-size 20000", "packets"),
    ("conform --list", "UET-PDS-"),
    ("conform --list --transport rc", "ROCE-"),
    ("explain unknown-key", "keys.md"),
    ("completion bash", "complete"),
    ("completion zsh", "compdef"),
    ("completion fish", "complete"),
)
WITH_EXTRAS = (
    ("run gradient-sealed-direct -o s.pcapng", "sealed"),
    ("export g.pcapng -o g.parquet", "7 rows"),
    ("query g.pcapng 'SELECT count(*) FROM packets'", "7"),
    ("audit g.pcapng --plot g.png", "g.png"),
    ("audit g.pcapng --parquet tables", ""),
)
COMPLETIONS = (
    "share/bash-completion/completions/uetproto", "share/zsh/site-functions/_uetproto",
    "share/fish/vendor_completions.d/uetproto.fish",
)  # fmt: skip
FILES = (  # in the package
    "py.typed", "errors.toml", "__init__.pyi", "layers/__init__.pyi", "wire/tuples.pyi",
    "wire/TABLES.md", "engine/STATES.md", "audit/RULES.md", "conform/COVERAGE.md",
    "conform/uet/pds_receive.toml", "conform/tss/tss.toml", "conform/roce/rc_psn.toml",
    "emulator/scenarios/gradient.toml", "traffic/profiles/mixed.toml", "wireshark/uetproto.lua",
    "report/page.css", "report/page.js", "testing/examples/uet_adapter.h",
)  # fmt: skip
PROGRAM = """
import uetproto
from uetproto.api import distributed, fi, verbs
from uetproto import columns, schemas
from uetproto.layers import PdsRudReq
first = next(iter(uetproto.open("g.pcapng")))
assert first.packet["pds.rod_req"]["psn"] == 73728 and uetproto.encode(first.packet) == first.data
assert list(columns.read("g.pcapng")["pds.ack"]["cack_psn"]) == [73728, 73730, 73731]
assert schemas.SCHEMAS["pds.rud_req"].parse(bytes(PdsRudReq(psn=7))).psn == 7
assert uetproto.open("g.pcapng").audit().ok
"""
PROGRAM_WITH_EXTRAS = """
from uetproto.testing import headers
from hypothesis import find
import pathlib, uetproto, lz4.frame, zstandard
for kind, compress in (("zst", zstandard.compress), ("lz4", lz4.frame.compress)):
    pathlib.Path("g.pcapng." + kind).write_bytes(compress(pathlib.Path("g.pcapng").read_bytes()))
    assert len(list(uetproto.open("g.pcapng." + kind))) == 7
find(headers("pds.ack"), lambda header: True)
assert uetproto.open("g.pcapng").to_arrow().num_rows == 7
assert len(uetproto.open("g.pcapng").to_pandas()) == 7 == len(uetproto.open("g.pcapng").to_polars())
"""


def alone(arguments: list[str]) -> tuple[int, str, str]:
    """Run a command of uetproto as a process; return its exit status and what it printed."""
    done = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, encoding="utf-8", check=False)
    return done.returncode, done.stdout, done.stderr


def here(arguments: list[str]) -> tuple[int, str, str]:
    """Run a command of uetproto in this process; return the same as `alone`."""
    from uetproto.cli.main import cli

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status: int = cli.status(arguments)
    return status, out.getvalue(), err.getvalue()


SCRIPT = str(Path(sysconfig.get_path("scripts")) / "uetproto")


def main() -> int:
    import shlex

    version, *options = sys.argv[1:]
    extras = "--extras" in options
    run = alone if "--apart" in options else here
    wrong = []

    package = importlib.metadata.files("uetproto") or []
    places = {str(path): Path(str(path.locate())) for path in package}
    wrong += [f"no file {name}" for name in FILES if f"uetproto/{name}" not in places]
    wrong += [f"no file {name}" for name, path in places.items() if not path.exists()]
    manual = Path(sysconfig.get_path("data")) / "share" / "man" / "man1"
    wrong += [f"no {name} in {manual}" for name in ("uetproto.1", "uetproto-run.1") if not (manual / name).exists()]
    wrong += [f"no {place}" for place in COMPLETIONS if not (Path(sysconfig.get_path("data")) / place).exists()]

    status, out, err = alone(["--version"])
    if (status, out) != (0, f"uetproto {version}\n"):
        wrong.append(f"--version: {out}{err}")
    for line, wanted in COMMANDS + (WITH_EXTRAS if extras else ()):
        status, out, err = run(shlex.split(line))
        if status != 0 or wanted not in out + err:
            wrong.append(f"uetproto {line}: exit status {status}, {wanted!r} is not in:\n{out[-800:]}{err[-800:]}")
    if importlib.util.find_spec("duckdb") is None:
        status, out, err = run(["query", "g.pcapng", "SELECT 1"])
        if status == 0 or "uetproto[tables]" not in err:
            wrong.append(f"query without the extra does not name it: {out}{err}")
    for program in (PROGRAM, PROGRAM_WITH_EXTRAS) if extras else (PROGRAM,):
        done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False)
        if done.returncode:
            wrong.append(done.stderr)

    import uetproto

    if Path(sysconfig.get_path("purelib")) not in Path(uetproto.__file__).parents:
        wrong.append(f"uetproto was imported from {uetproto.__file__}")
    number = len(COMMANDS) + (len(WITH_EXTRAS) if extras else 0)
    print("\n".join(wrong) if wrong else f"Python {sys.version.split()[0]}: {number} commands, {len(places)} files")
    return 1 if wrong else 0


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    sys.exit(main())
