# SPDX-License-Identifier: GPL-2.0-only
"""Adapters that lie, hang, die or answer garbage are named as the finding that they are."""

import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli.frames import invoke
from uetproto.check.time_limit import pulse
from uetproto.errors import LocalError
from uetproto.testing import (
    AdapterFault,
    Capabilities,
    PdcEngine,
    PdcMachine,
    ProcessAdapter,
    RoceMachine,
    SesTargetMachine,
    WorkRefused,
    WorldFailure,
)
from uetproto.testing.adapters import guarded
from uetproto.testing.adapters.roce import RoceEngine

BEGIN = ("begin", {"seed": 0, "knobs": {}})
ROCE_BEGIN = ("begin", {"psns": [0, 0], "reads": 16, "rnr_timer": 12, "knobs": {}})
Seen = dict[str, Any]


def fault_of(kind: Any, *steps: Any) -> AdapterFault:
    """How an adapter fails in the PDC machine."""
    with pytest.raises(AdapterFault) as found:
        PdcMachine.of(kind).replay([BEGIN, *steps])
    return found.value


# Lies -----------------------------------------------------------------------------------------------------------------

LIES: dict[str, Callable[[Seen], Any]] = {
    "'deliverd' is no event (did you mean delivery?); legal: delivery, completion":
        lambda seen: {**seen, "events": [{"event": "deliverd"}]},
    "None is no event; legal: delivery, completion": lambda seen: {**seen, "events": [{}]},
    "[] is no event; legal: delivery, completion": lambda seen: {**seen, "events": [{"event": []}]},
    "event delivery: data is 'zz', and not hexadecimal text":
        lambda seen: {**seen, "events": [{"event": "delivery", "data": "zz"}]},
    "event delivery: data is None, and not hexadecimal text":
        lambda seen: {**seen, "events": [{"event": "delivery"}]},
    "event completion: id is [1], and not a whole number":
        lambda seen: {**seen, "events": [{"event": "completion", "id": [1], "ok": True}]},
    "event completion: ok is 1, and not true or false":
        lambda seen: {**seen, "events": [{"event": "completion", "id": 1, "ok": 1}]},
    "events: None is not a list of mappings": lambda seen: {**seen, "events": None},
    "state: [] is not a mapping": lambda seen: {**seen, "state": []},
    "state: pdcs is 3, and not a list": lambda seen: {**seen, "state": {"pdcs": 3}},
    "state: pdcs: 3 is not a mapping": lambda seen: {**seen, "state": {"pdcs": [3]}},
    "state: una of a PDC is nan, and not a whole number":
        lambda seen: {**seen, "state": {"pdcs": [{"pdcid": 1, "una": float("nan")}]}},
}  # fmt: skip


def test_an_observation_that_is_not_legal_is_the_finding() -> None:
    for text, lie in LIES.items():

        class Liar(PdcEngine):
            def observe(self, lie: Callable[[Seen], Any] = lie) -> Any:
                return lie(super().observe())

        assert f"{fault_of(Liar)}" == f"adapter-garbage: observe: {text}"


def test_an_event_before_the_first_step_is_judged() -> None:
    class Early(PdcEngine):
        def observe(self) -> Any:
            return {"events": [{"event": "delivery", "data": "00"}]}

    with pytest.raises(WorldFailure, match="PDS-DELIVERED-WRONG"):
        PdcMachine.of(Early).replay([BEGIN])


def test_memory_that_is_not_shown_is_not_judged() -> None:
    class Hidden(RoceEngine):
        def state(self) -> dict[str, Any]:
            return {}

    write = ("write", {"node": 1, "length": 4, "offset": 0, "imm": None})
    machine = RoceMachine.of(Hidden)
    machine.replay([ROCE_BEGIN, write])
    assert {"ROCE-COMPLETED-EARLY", "ROCE-MEMORY"} <= machine.verdicts.not_judged.keys()


# What calls must not do -----------------------------------------------------------------------------------------------


class RefusesFrames(PdcEngine):
    def deliver(self, frame: bytes) -> None:
        raise WorkRefused("full")


class Exits(PdcEngine):
    def poll(self) -> list[bytes]:
        raise SystemExit(3)


class CannotBeMade(PdcEngine):
    def __init__(self) -> None:
        raise RuntimeError("no device")


class CannotClose(PdcEngine):
    def poll(self) -> list[bytes]:
        raise AssertionError

    def close(self) -> None:
        raise RuntimeError("close")


class Sleeps(PdcEngine):
    def poll(self) -> list[bytes]:
        time.sleep(60)
        return []


def test_a_call_that_must_not_refuse_raise_or_end_the_program_is_the_finding() -> None:
    arrives = ("exchange", {"node": 1, "mode": "rud"})
    assert str(fault_of(RefusesFrames, arrives)) == "adapter-raised: deliver refused: full; only submit may refuse"
    for kind, text in ((Exits, "poll raised SystemExit: 3 (test_adapters.py:"),
                       (CannotBeMade, "no adapter was made: RuntimeError: no device (test_adapters.py:"),
                       (CannotClose, "poll raised AssertionError (test_adapters.py:")):  # fmt: skip
        assert str(fault_of(kind)).startswith(f"adapter-raised: {text}")


def test_work_that_no_machine_has_is_refused() -> None:
    with pytest.raises(LocalError, match=r"work: 'mesage' is not legal \(did you mean message\?\); legal: access, "):
        Capabilities(work=("mesage",))


def test_an_adapter_for_another_machine_is_refused() -> None:
    for kind in (RoceMachine, SesTargetMachine):
        with pytest.raises(LocalError, match=f"work: .* is not legal with {kind.name}; legal: some of "):
            kind.of(PdcEngine).adapter()


def test_work_that_is_always_refused_is_told() -> None:
    class Refuses(RoceEngine):
        def submit(self, work: Any) -> None:
            if work["op"] != "recv":
                raise WorkRefused("no")
            super().submit(work)

    machine = RoceMachine.of(Refuses)
    write = ("write", {"node": 0, "length": 4, "offset": 0, "imm": None})
    machine.replay([ROCE_BEGIN, ("recv", {"node": 0, "count": 1}), write])
    assert machine.verdicts.never_judged["work 'write'"] == "the implementation refuses it"
    assert "work 'recv'" not in machine.verdicts.never_judged


def test_what_all_work_needs_must_not_be_refused() -> None:
    class NeverAnswers(PdcEngine):
        def submit(self, work: Any) -> None:
            if work["op"] == "respond_all":
                raise WorkRefused("no")
            super().submit(work)

    with pytest.raises(WorldFailure, match="PDS-REFUSED: the implementation refuses respond_all: no"):
        PdcMachine.of(NeverAnswers).replay([("begin", {"seed": 0, "knobs": {"late_response": True}})])


def test_a_call_that_sleeps_is_the_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "HANGS", 0.01)
    assert fault_of(Sleeps).kind == "adapter-hung"


def test_a_timer_of_others_goes_on() -> None:
    rings: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: rings.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 5)
        with pulse(lambda: None):
            pass
        assert 4 < signal.getitimer(signal.ITIMER_REAL)[0] <= 5
        assert signal.getsignal(signal.SIGALRM)(0, None) is None  # type: ignore[operator,misc]
        assert rings == [0]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# Processes ------------------------------------------------------------------------------------------------------------

HELLO = """\
echo '{"result": {"capabilities": {}}}'
"""


def shell(*lines: str, timeout: float = 5) -> ProcessAdapter:
    """A program that answers the first request as it should."""
    return ProcessAdapter(["sh", "-c", "\n".join(("read line", HELLO, *lines))], timeout)


def test_an_answer_that_is_not_legal_is_the_finding() -> None:
    for answer, kind, text in (
        ('{"result": {}}', "garbage", "poll: {} is not a list of hexadecimal texts"),
        ('{"result": "00"}', "garbage", "poll: '00' is not a list of hexadecimal texts"),
        ('{"result": ["0"]}', "garbage", "poll: ['0'] is not a list of hexadecimal texts"),
        ('{"result": [NaN]}', "garbage", "poll: b'{\"result\": [NaN]}' is no JSON"),
        ('{"error": "no"}', "raised", "poll: no"),
    ):
        adapter = shell("read line", f"echo '{answer}'", "read line")
        with pytest.raises(AdapterFault) as found:
            adapter.poll()
        assert str(found.value) == f"adapter-{kind}: {text}"
        adapter.close()
    with pytest.raises(AdapterFault, match="adapter-garbage: hello: it was refused: no"):
        ProcessAdapter(["sh", "-c", 'read line; echo \'{"refused": "no"}\'; read line'])


def test_the_last_words_of_a_process_are_told() -> None:
    adapter = shell("read line", "echo first >&2", "echo no device >&2", "exit 7")
    with pytest.raises(AdapterFault) as found:
        adapter.poll()
    adapter.close()
    assert str(found.value).partition("\n")[0] == "adapter-died: poll: the process ended with exit status 7: no device"


def test_a_process_that_does_not_read_is_hung() -> None:
    adapter = shell("sleep 9", timeout=0.05)
    with pytest.raises(AdapterFault, match="adapter-hung: submit: the request was not read"):
        adapter.submit({"op": "message", "packets": ["00" * 100_000]})
    adapter.close()


def test_nothing_of_a_process_is_left_over(tmp_path: Path) -> None:
    """A script starts the implementation, which hangs."""
    adapter = shell(f"sleep 60 & echo $! > {tmp_path}/child", "wait", timeout=0.2)
    with pytest.raises(AdapterFault, match="adapter-hung"):
        adapter.poll()
    adapter.close()
    child = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/status")
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended and was reaped
        for _ in range(3000):  # killed, and perhaps not run since
            if "\nState:\tZ" in child.read_text():
                return
            time.sleep(0.01)
        pytest.fail("the child of the process is still there")


# The command line -----------------------------------------------------------------------------------------------------


def test_an_adapter_that_never_comes_behind_its_first_step_ends_the_search(tmp_path: Path) -> None:
    done = invoke("fuzz", "pdc", "--adapter", "sh -c 'exit 3'", "--steps", "1000", "--seed", "1", "-o", str(tmp_path))
    assert done.exit_code == 1
    assert "adapter-died: hello: the process ended with exit status 3" in done.stdout
    assert "10 steps of 10 runs" in done.stdout


def test_what_cannot_be_an_adapter_is_refused_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit('gone')\n")
    (tmp_path / "raises.py").write_text("raise ValueError('bad')\n")
    for name, text in (("leaves:A", "the module is not imported: SystemExit: gone (leaves.py:2)"),
                       ("raises:A", "the module is not imported: ValueError: bad (raises.py:1)"),
                       ("./stack 'x", "No closing quotation")):  # fmt: skip
        done = invoke("fuzz", "pdc", "--adapter", name, "--steps", "10", "-o", str(tmp_path))
        assert done.exit_code == 2
        assert text in done.stderr
        assert done.stderr.count("\n") == 1
    sys.path.remove(str(tmp_path))
