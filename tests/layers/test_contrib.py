# SPDX-License-Identifier: GPL-2.0-only
"""The single file that `tools/contrib` writes passes its tests under Scapy's own runner."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT
from uetproto import layers as uet


def test_the_contrib_file_passes_its_tests_in_scapys_runner(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "tools" / "contrib", "-o", tmp_path], check=True)
    source = (tmp_path / "uet.py").read_text(encoding="utf-8")
    assert "import uetproto" not in source
    assert "from uetproto" not in source
    assert max(map(len, source.splitlines())) <= 79
    assert re.findall(r"^# scapy.contrib.status = (.*)", source, re.MULTILINE) == ["loads"]

    there = f"import scapy.contrib; scapy.contrib.__path__.append({str(tmp_path)!r})"
    command = [sys.executable, "-m", "scapy.tools.UTscapy", "-f", "text", "-P", there, "-t", tmp_path / "uet.uts"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    passed = re.findall(r"^passed \w+ \S+ (.*)", done.stdout, re.MULTILINE)
    assert {cls.__name__ for cls in uet.LAYERS.values()} <= set(passed)
    assert sum(name.endswith(" / UetCrc32c") for name in passed) > 40
