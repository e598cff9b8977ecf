# SPDX-License-Identifier: GPL-2.0-only
"""The MTU that an error names as legal is legal: a run with it is not refused, and no smaller one is called legal."""

import re

import pytest

from tests.support.effort import effort
from uetproto.emulator.run.play import run
from uetproto.emulator.scenario.settings import load, names
from uetproto.errors import LocalError


def named(name: str, settings: tuple[str, ...]) -> int:
    """The MTU that is named as legal for a link with an MTU of 100."""
    with pytest.raises(LocalError) as refused:
        load(name, (*settings, "fabric.mtu=100"))
    found = re.search(r"legal: a mtu of (\d+) and more", str(refused.value))
    assert found is not None, str(refused.value)
    return int(found[1])


def check(name: str, *settings: str) -> None:
    mtu = named(name, settings)
    with pytest.raises(LocalError, match=f"legal: a mtu of {mtu} and more"):
        load(name, (*settings, f"fabric.mtu={mtu - 1}"))
    tight = run(load(name, (*settings, f"fabric.mtu={mtu}")))
    assert tight.ok or tight.failure == run(load(name, settings)).failure  # some ladders end in an error of a PDC


def test_the_legal_mtu_of_every_shipped_scenario_runs() -> None:
    for name in names()[:: effort(2, 1, 1)]:
        check(name)


@pytest.mark.parametrize("name", ["ses-rendezvous-send", "ses-fetching-atomic", "gradient-sealed-direct"])
@pytest.mark.parametrize("how", ["udp", "native"])
@pytest.mark.parametrize("crc", ["on", "off"])
@pytest.mark.parametrize("payload", [1024, 8192])
def test_the_legal_mtu_runs_whatever_the_encapsulation(name: str, how: str, crc: str, payload: int) -> None:
    check(name, f"fabric.encapsulation={how}", f"fabric.crc={crc}", f"ses.payload_mtu={payload}")
