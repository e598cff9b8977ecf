# SPDX-License-Identifier: GPL-2.0-only
"""Keys that open no sealed packet of a capture are a fault of the run, not a clean result."""

import json
from pathlib import Path

import pytest

from tests.support.cli.frames import invoke

PCAPS = Path(__file__).parents[2] / "pcaps"
SEALED = str(PCAPS / "gradient-sealed-cluster.pcapng")


@pytest.mark.parametrize("command", ["audit", "stats"])
@pytest.mark.parametrize(("keys", "status"), [("direct", 1), ("cluster", 0)])
def test_keys(command: str, keys: str, status: int) -> None:
    result = invoke(command, SEALED, "--keys", str(PCAPS / f"gradient-sealed-{keys}.keys.toml"))
    assert result.exit_code == status
    assert ("the keys open none of the sealed packets" in result.stdout + result.stderr) == bool(status)


@pytest.mark.parametrize(("keys", "status"), [("direct", 1), ("cluster", 0)])
def test_diff_with_keys(keys: str, status: int) -> None:
    keys_file = str(PCAPS / f"gradient-sealed-{keys}.keys.toml")
    result = invoke("diff", SEALED, SEALED, "--golden", "--keys", keys_file)
    assert (result.exit_code, result.stdout) == (status, "")
    assert ("7 sealed packets: no key of --keys opens them" in result.stderr) == bool(status)
    assert invoke("diff", SEALED, SEALED).exit_code == 0


def test_no_keys_are_no_fault() -> None:
    result = invoke("audit", SEALED, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout.splitlines()[-1])["unopened"] == {"no keys": 7}
