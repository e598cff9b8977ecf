# SPDX-License-Identifier: GPL-2.0-only
"""This module is a pytest plugin that runs the tests in several processes: `pytest --cores 2`.

Tests are collected once. The processes are forked from the one that has collected, so they share its modules and
memory. Each takes the tests of a file, and then those of the next file that nobody has taken. The first process runs no
test; it receives the reports of the others and tells them to the plugins of pytest. This costs half the CPU time of
workers that each collect all tests for themselves.
"""

import gc
import multiprocessing
import os
import warnings
from collections.abc import Iterator, Sequence
from itertools import groupby
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import pytest

_NUMBER = 4
"""Bytes of a file's number in the pipe of files that nobody has taken; a read of so few is never cut."""
_STARTED, _REPORT, _WARNING = range(3)
"""What a message from a process is about."""


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "Run the tests in that many processes, or in one for each core (auto)."
    parser.getgroup("cores").addoption("--cores", default="1", metavar="N", help=text)


def pytest_configure(config: pytest.Config) -> None:
    text = config.getoption("cores")
    if text == "auto":
        cores = len(os.sched_getaffinity(0))
    elif text.isdecimal() and int(text):
        cores = int(text)
    else:
        raise pytest.UsageError(f"--cores is {text!r}; legal: auto, and whole numbers from 1 on")
    if cores > 1 and not config.getoption("usepdb"):
        config.pluginmanager.register(_Cores(cores), "cores")


class _Worker(NamedTuple):
    process: BaseProcess
    messages: Connection


class _Cores:
    """The plugin of the first process: it starts the others, and passes on what they tell."""

    def __init__(self, count: int) -> None:
        self._count = count

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.config.option.collectonly or (
            session.testsfailed and not session.config.option.continue_on_collection_errors
        ):
            return None
        files = [list(items) for _, items in groupby(session.items, key=lambda item: item.path)]
        terminal = session.config.pluginmanager.getplugin("terminalreporter")
        if terminal is not None:
            terminal.showfspath = False  # reports of several files come in turns
        left, queue = os.pipe()
        with open(queue, "wb") as out:
            out.write(b"".join(number.to_bytes(_NUMBER) for number in range(len(files))))
        gc.collect()
        gc.freeze()  # nothing of what all processes share is looked at, and so copied, in a collection of theirs
        workers: list[_Worker] = []
        try:
            while len(workers) < min(self._count, len(files)):
                workers += [_start(session.config, files, left)]
            self._pass_on(session, workers)
        finally:
            os.close(left)
            for worker in workers:
                worker.process.terminate()
                worker.messages.close()  # a test may hold the signal up; it has nobody to tell its result
                worker.process.join()
        return True

    def _pass_on(self, session: pytest.Session, workers: Sequence[_Worker]) -> None:
        """Tell what the processes tell, until the last has ended or the session shall end."""
        running = {worker.messages: worker.process for worker in workers}
        last = dict.fromkeys(running, "")
        hook = session.config.hook
        while running:
            for messages in wait(list(running)):
                assert isinstance(messages, Connection)
                try:
                    kind, content = messages.recv()
                except EOFError:
                    process = running.pop(messages)
                    process.join()
                    if process.exitcode:
                        _report_death(session, last[messages], process.exitcode)
                    continue
                if kind == _STARTED:
                    last[messages] = content
                elif kind == _REPORT:
                    report = hook.pytest_report_from_serializable(config=session.config, data=content)
                    hook.pytest_runtest_logreport(report=report)
                else:
                    hook.pytest_warning_recorded.call_historic(kwargs=content)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)


def _report_death(session: pytest.Session, test: str, status: int) -> None:
    how = f"signal {-status}" if status < 0 else f"exit status {status}"
    text = f"The process that ran this test ended with {how}; the tests of its file that come later were not run."
    report = pytest.TestReport(test, (test.partition("::")[0], None, test), {}, "failed", text, "call")
    session.config.hook.pytest_runtest_logreport(report=report)


def _start(config: pytest.Config, files: Sequence[list[pytest.Item]], left: int) -> _Worker:
    messages, own = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_work, args=(config, files, left, own))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a library that was imported may have threads; they sleep
        process.start()
    own.close()  # so that the end of the process is the end of its messages
    return _Worker(process, messages)


def _work(config: pytest.Config, files: Sequence[list[pytest.Item]], left: int, messages: Connection) -> None:
    """Run tests in a process of their own, and send what happens."""
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:  # its files are those of the first process
        capture.stop_global_capturing()
        capture.start_global_capturing()
    for name in ("cores", "terminalreporter"):
        if config.pluginmanager.hasplugin(name):
            config.pluginmanager.unregister(name=name)
    config.pluginmanager.register(_Messenger(config, messages))
    tests = _taken(files, left)
    test = next(tests, None)
    try:
        while test is not None:
            following = next(tests, None)
            messages.send((_STARTED, test.nodeid))
            config.hook.pytest_runtest_protocol(item=test, nextitem=following)
            test = following
    except (KeyboardInterrupt, BrokenPipeError):  # the first process has been told to end, too, or has ended
        raise SystemExit(130) from None
    if capture is not None:
        capture.stop_global_capturing()


def _taken(files: Sequence[list[pytest.Item]], left: int) -> Iterator[pytest.Item]:
    """Yield the tests of a file that nobody has taken, then those of another, until none is left."""
    while number := os.read(left, _NUMBER):
        yield from files[int.from_bytes(number)]


class _Messenger:
    """The plugin of a process that runs tests: it sends their reports to the first process."""

    def __init__(self, config: pytest.Config, messages: Connection) -> None:
        self._config, self._messages = config, messages

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._messages.send((_REPORT, data))

    def pytest_warning_recorded(self, warning_message: Any, when: str, nodeid: str, location: Any) -> None:
        content = {"warning_message": warning_message, "when": when, "nodeid": nodeid, "location": location}
        self._messages.send((_WARNING, content))
