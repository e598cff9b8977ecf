# SPDX-License-Identifier: GPL-2.0-only
"""A shared library is driven like an object in Python: the example in C has no finding, and each of its faults has."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

import uetproto.testing
from tests.support.effort import effort
from tests.support.paths import ROOT
from tests.support.testing.machines import RUNS, SHRINKS
from uetproto.errors import LocalError
from uetproto.testing import AdapterFault, LibraryAdapter, PdcMachine, ProcessAdapter, WorkRefused, WorldFailure
from uetproto.testing.adapters.named import adapter_named

EXAMPLES = Path(uetproto.testing.__file__).parent / "examples"
CONFIG = {"machine": "pdc", "seed": 0, "address": "10.0.0.1", "peer": "10.0.0.2", "knobs": {}}
BEGIN = ("begin", {"seed": 0, "knobs": {}})
LOST_ACK = [
    BEGIN, ("message", {"node": 1, "mode": "rud", "packets": 1}), ("deliver", {"index": 0}), ("drop", {"index": 0}),
]  # fmt: skip
OVERTAKEN = [BEGIN, ("message", {"node": 1, "mode": "rud", "packets": 2}), ("deliver", {"index": 1})]
REPEATED = [
    BEGIN, ("message", {"node": 0, "mode": "rud", "packets": 2}), ("drop", {"index": 0}), ("deliver", {"index": 0}),
]  # fmt: skip

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler (cc)")


def compiled(source: Path, target: Path, *more: str) -> Path:
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-shared", "-fPIC", "-O2", *more]
    subprocess.run([*command, f"-I{EXAMPLES}", "-o", target, source], check=True)
    return target


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(EXAMPLES / "pdc.c", tmp_path_factory.mktemp("pdc") / "pdc.so")


def test_the_example_is_short() -> None:
    lines = {path.name: path.read_text(encoding="utf-8").splitlines() for path in EXAMPLES.glob("*.[ch]")}
    assert len(lines["pdc.c"]) <= 300
    assert len(lines["uet_adapter.h"]) <= 120
    assert all(len(line) <= 110 for each in lines.values() for line in each)


def machine_of(library: Path, fault: str, patch: pytest.MonkeyPatch) -> type[PdcMachine]:
    patch.setenv("PDC_FAULT", fault)
    return PdcMachine.of(lambda: LibraryAdapter(library))


def test_the_example_has_no_finding(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = machine_of(library, "", monkeypatch)
    run_state_machine_as_test(machine, settings=settings(RUNS, max_examples=effort(25, 200, 2000)))
    machine.release()
    judged = machine.verdicts.judged
    assert all(judged[name] for name in ("PDS-DELIVERED-ONCE", "PDS-COMPLETED", "PDC-WINDOW", "PDS-RETX-MISSING"))


FAULTS = [
    ("retx", REPEATED, "PDS-RETX-MISSING"),
    ("twice", LOST_ACK, "PDS-DELIVERED-ONCE"),
    ("cack", OVERTAKEN, "PDS-CACK-HOLE"),
]


@pytest.mark.parametrize(("fault", "steps", "rule"), FAULTS)
def test_a_fault_is_named(
    library: Path, monkeypatch: pytest.MonkeyPatch, fault: str, steps: Any, rule: str
) -> None:  # fmt: skip
    machine_of(library, "", monkeypatch).replay(steps)
    with pytest.raises(WorldFailure) as found:
        machine_of(library, fault, monkeypatch).replay(steps)
    assert found.value.name == rule


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the section of docs/howto/machines.md about C defines."""
    text = (ROOT / "docs" / "howto" / "machines.md").read_text(encoding="utf-8").partition("## A library in C")[2]
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.S)[:2]:
        exec(block, scope)
    return scope


SHOWN_AS = {
    "retx": {"PDS-RETX-MISSING", "PDS-COMPLETED"}, "twice": {"PDS-DELIVERED-ONCE"},
    "cack": {"PDS-CACK-HOLE", "PDS-COMPLETED-EARLY"},
}  # fmt: skip


@pytest.mark.parametrize("fault", effort(["twice"], [*SHOWN_AS], [*SHOWN_AS]))
def test_the_example_of_the_page_finds_and_shrinks_a_fault(
    page: dict[str, Any], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setenv("PDC_FAULT", fault)
    case = page["TestPdc"]
    phases = RUNS.phases if SHRINKS else [Phase.generate]
    case.settings = settings(case.settings, phases=phases, database=None, print_blob=False, derandomize=True)
    with pytest.raises(WorldFailure) as found:
        case().runTest()
    assert found.value.name in SHOWN_AS[fault], found.value
    notes = "\n".join(found.value.__notes__)
    assert "10.0.0.1 is the implementation" in notes
    assert 1 <= notes.count("\nstate.") <= 8 or not SHRINKS, notes


def test_a_library_in_a_process_of_its_own(library: Path) -> None:
    adapter = adapter_named(str(library))()
    assert isinstance(adapter, ProcessAdapter)
    assert adapter.capabilities.modes == ("rud",)
    adapter.reset(CONFIG)
    adapter.submit({"op": "message", "id": 7, "mode": "rud", "packets": [bytes(44).hex(), bytes(108).hex()]})
    assert [len(frame) for frame in adapter.poll()] == [102, 166]
    with pytest.raises(WorkRefused):
        adapter.submit({"op": "message", "id": 8, "mode": "rod", "packets": [bytes(44).hex()]})
    with pytest.raises(WorkRefused):
        adapter.submit({"op": "close"})
    adapter.close()


WRONG = {
    "raised": ("return -5;", "0", "adapter-raised"),
    "long": ("return 1 << 20;", "0", "adapter-garbage"),
    "behind": ("memset(buffer, 0, size + 8); return 0;", "0", "adapter-garbage"),
    "endless": ("return 60;", "0", "adapter-garbage"),
    "crash": ("abort();", "0", "adapter-died"),
    "text": ("return 0;", '(int64_t)strlen(strcpy(buffer, "{no JSON"))', "adapter-garbage"),
}


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that does in `poll` and `observe` what the environment variable WRONG says."""
    folder = tmp_path_factory.mktemp("wrong")
    cases = "\n".join(f'if (!strcmp(wrong, "{name}")) {{ {poll} }}' for name, (poll, _, _) in WRONG.items())
    (folder / "wrong.c").write_text(
        f"""
        #include <stdlib.h>
        #include <string.h>
        #include "uet_adapter.h"
        int uet_adapter_version(void) {{ return 1; }}
        const char *uet_capabilities(void) {{ return "{{}}"; }}
        void *uet_create(void) {{ static int one; return &one; }}
        void uet_destroy(void *e) {{ (void)e; }}
        int uet_reset(void *e, const struct uet_config *c) {{ (void)e; return c->address == 0x0a000001 ? 0 : -1; }}
        int uet_submit_message(void *e, uint32_t id, const char *mode, size_t count, const uint8_t *const packets[],
                               const size_t lengths[])
        {{ (void)e; (void)id; (void)mode; (void)count; (void)packets; (void)lengths; return 1; }}
        int uet_deliver(void *e, const uint8_t *frame, size_t length)
        {{ (void)e; (void)frame; (void)length; return 0; }}
        int uet_advance(void *e, uint64_t picoseconds) {{ (void)e; (void)picoseconds; return 0; }}
        int64_t uet_poll(void *e, uint8_t *buffer, size_t size)
        {{ const char *wrong = getenv("WRONG"); (void)e; (void)buffer; (void)size; {cases} return 0; }}
        int64_t uet_observe(void *e, char *buffer, size_t size)
        {{ (void)e; (void)size; return {WRONG["text"][1]}; }}
        """
    )
    return compiled(folder / "wrong.c", folder / "wrong.so")


@pytest.mark.parametrize("name", WRONG)
def test_what_a_library_must_not_do_is_the_finding(wrong: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("WRONG", name)
    command = [sys.executable, "-m", "uetproto.testing.adapters.serve", str(wrong)]
    adapter = ProcessAdapter(command) if name == "crash" else LibraryAdapter(wrong)
    adapter.reset(CONFIG)
    with pytest.raises(AdapterFault) as found:
        adapter.observe() if name == "text" else adapter.poll()
    assert found.value.kind == WRONG[name][2]
    adapter.close()


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library")
    (tmp_path / "empty.c").write_text("int uet_adapter_version(void);\nint uet_adapter_version(void) { return 2; }\n")
    empty = compiled(tmp_path / "empty.c", tmp_path / "empty.so")
    for path, why in ((tmp_path / "text.so", "is not loaded"), (tmp_path / "none.so", "is not loaded"),
                      (empty, "no function uet_capabilities")):  # fmt: skip
        with pytest.raises(LocalError, match=why):
            LibraryAdapter(path)
