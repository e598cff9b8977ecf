# SPDX-License-Identifier: GPL-2.0-only
"""What `import uetproto` gives, and what it does not load."""

import json
import subprocess
import sys
from types import ModuleType

import uetproto

NAMES = [
    "Capture",
    "CaptureWarning",
    "Fault",
    "Layer",
    "LocalError",
    "Packet",
    "PacketView",
    "RemoteError",
    "Trailer",
    "UetError",
    "__version__",
    "collective",
    "decode",
    "encode",
    "fabric",
    "generate",
    "open",
    "run",
]


def test_public_names_and_nothing_more() -> None:
    assert sorted(uetproto.__all__) == NAMES
    public = {name for name in dir(uetproto) if not name.startswith("_")}
    modules = {name for name in public if isinstance(getattr(uetproto, name), ModuleType)}
    assert (public - modules) | {"fabric"} == set(NAMES) - {"__version__"}  # a function, and a package that is called


def test_every_name_is_documented() -> None:
    for name in NAMES:
        if name != "__version__":
            assert getattr(uetproto, name).__doc__, name


def test_errors_have_one_root() -> None:
    assert issubclass(uetproto.LocalError, uetproto.UetError)
    assert issubclass(uetproto.RemoteError, uetproto.UetError)
    assert not issubclass(uetproto.LocalError, uetproto.RemoteError)
    assert uetproto.RemoteError("what", 13).code == 13


def test_import_is_light() -> None:
    code = "import json, sys, uetproto; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert not {"scapy", "numpy", "construct", "rich", "click", "hypothesis", "asyncio", "socket"} & loaded
    assert not {name for name in loaded if name.startswith(("uetproto.cli", "uetproto.engine", "uetproto.emulator"))}
