# SPDX-License-Identifier: GPL-2.0-only
"""`--cores` gives the result that one process gives, and says when a process dies."""

import pytest

from tests.support.paths import ROOT

pytest_plugins = ["pytester"]

FIRST = """
import os, pytest

@pytest.fixture(scope="module")
def number(request):
    return os.getpid()

@pytest.mark.parametrize("case", range(3))
def test_passes(number, case):
    assert number == os.getpid() != os.getppid()

def test_fails():
    print("on the way")
    assert [1, 2] == [1, 3]

def test_is_skipped():
    pytest.skip("for a reason")

@pytest.mark.xfail(reason="known")
def test_is_known():
    raise ValueError

def test_warns():
    import warnings
    warnings.warn("beware")

@pytest.fixture
def broken():
    raise LookupError("no such thing")

def test_has_no_fixture(broken):
    pass
"""
SECOND = """
import os, signal

def test_before():
    pass

def test_dies():
    os.kill(os.getpid(), signal.SIGKILL)

def test_after():
    pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(test_first=FIRST, test_second=SECOND)
    return pytester


def run(suite: pytest.Pytester, *options: str) -> pytest.RunResult:
    return suite.runpytest_subprocess("-p", "tests.support.cores", "-p", "no:cacheprovider", *options)


def test_what_one_process_says_two_say(suite: pytest.Pytester) -> None:
    result = run(suite, "--cores", "2", "-ra", "--durations", "1")
    result.assert_outcomes(passed=5, failed=2, skipped=1, xfailed=1, errors=1, warnings=1)
    result.stdout.fnmatch_lines_random([
        "*assert [[]1, 2[]] == [[]1, 3[]]", "on the way", "*UserWarning: beware", "*LookupError: no such thing",
        "*process that ran this test ended with signal 9*", "SKIPPED*for a reason", "*slowest*",
        "FAILED test_second.py::test_dies*",
    ])  # fmt: skip
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_it_ends_at_the_first_failure(suite: pytest.Pytester) -> None:
    result = run(suite, "--cores", "2", "-x", "test_first.py")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines_random(["*stopping after 1 failures*"])


def test_misuse(suite: pytest.Pytester) -> None:
    result = run(suite, "--cores", "many")
    result.stderr.fnmatch_lines(["ERROR: --cores is 'many'; legal: auto, and whole numbers from 1 on"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR
