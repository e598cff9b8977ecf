# SPDX-License-Identifier: GPL-2.0-only
"""The pytest plugin shows the frames of a test that fails, and tells what machines could not judge."""

from pathlib import Path

import pytest

from uetproto.wire.capture.pcap import open_capture

pytest_plugins = ["pytester"]

SUITE = """
import pytest
from hypothesis import HealthCheck, Phase, settings
from uetproto import LocalError
from uetproto.testing import Capabilities, PdcEngine, PdcMachine

def test_fabric(uet_fabric):
    fabric = uet_fabric.fi(seed=3)
    a, b = (fabric.endpoint(node) for node in ("a", "b"))
    mr = b.domain.mr_reg(bytearray(64))
    a.write(b"gradient", b.address, 0, mr.key)
    a.cq.sread(1)
    assert False, "on purpose"

def test_verbs(uet_fabric):
    with uet_fabric.verbs(["x", "y"]) as network:
        assert network.device("x")

def test_capture(uet_capture):
    with pytest.raises(LocalError, match="bytes"):
        uet_capture.record("00")
    uet_capture.record(bytes.fromhex("02000a00000202000a0000010800") + bytes(46))
    uet_capture.record(bytes(60), time=5_000_000)
    assert False, "on purpose"

class Twice(PdcEngine):
    capabilities = Capabilities()
    def observe(self):
        seen = super().observe()
        return {"events": seen["events"] * 2}

TestTwice = PdcMachine.of(Twice).TestCase
TestTwice.settings = settings(
    max_examples=20, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
"""


def frames(path: Path) -> int:
    with open_capture(path) as records:
        return len(list(records))


def test_failing_tests_show_their_frames(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE)
    result = pytester.runpytest("-p", "uetproto.testing.plugin", "-p", "no:cacheprovider", "-p", "no:randomly")
    result.assert_outcomes(passed=1, failed=3)
    text = result.stdout.str()
    folder = pytester.path / ".uetproto"
    kept = {path.name: path for path in folder.glob("*.pcapng")}
    assert all(str(path) in text for path in kept.values()), text
    assert len(kept) == 3, kept  # none of the test that passed
    counts = {name.partition("py-")[2]: frames(path) for name, path in kept.items()}
    assert counts["test_fabric.pcapng"] >= 2  # the request and its response, although the fabric was still open
    assert counts["test_capture.pcapng"] == 2
    assert "WRITE" in text.partition("UET ladder")[2]
    machine = next(name for name in counts if "Twice" in name)
    assert counts[machine] >= 1
    assert "PdcMachineForTwice: not judged: " in text
    assert "PDC-CACK-FORWARD, PDC-CLEAR-FORWARD, PDC-WINDOW (observe gives no PDCs)" in text
    assert (folder / ".gitignore").read_text("utf-8") == "*\n"


def test_the_example_of_the_page_passes(pytester: pytest.Pytester) -> None:
    page = (Path(__file__).parents[2] / "docs/howto/testing.md").read_text("utf-8")
    pytester.makepyfile(page.partition("## Fixtures of pytest")[2].partition("```python\n")[2].partition("```")[0])
    pytester.runpytest("-p", "uetproto.testing.plugin", "-p", "no:cacheprovider").assert_outcomes(passed=1)
    assert not (pytester.path / ".uetproto").exists()
