# SPDX-License-Identifier: GPL-2.0-only
"""This module reads `--set` of `uetproto fabric`: keys of the sections `cc`, `switch` and `pds` of keys.md."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from uetproto.emulator.congestion import CC_KEYS, SWITCH_KEYS, SwitchConfig
from uetproto.engine.cc.config import CcConfig
from uetproto.engine.config import PdsConfig
from uetproto.errors import LocalError, argument, similar, unfit
from uetproto.knobs import RATE, TIME, KeyType, keys_of

_BY_OPTION = {"cc.algorithm": "cc", "cc.lb": "lb", "switch.profile": "profile"}
_SECTIONS: Mapping[str, Mapping[str, KeyType]] = {"cc": CC_KEYS, "switch": SWITCH_KEYS, "pds": keys_of(PdsConfig)}


@dataclass(frozen=True, slots=True)
class StudySettings:
    """Study settings are what `--set` gave: parameters of congestion control, of switches, and of packet delivery."""

    cc: dict[str, Any]
    switch: SwitchConfig
    pds: PdsConfig


def settings_of(texts: Iterable[str], pds: PdsConfig) -> StudySettings:
    """Return the parameters of texts such as "cc.entropy_values=16"; `pds` has those that are not given. Raises
    `LocalError` for a key or a value that is not legal."""
    found: dict[str, dict[str, Any]] = {name: {} for name in _SECTIONS}
    for text in texts:
        key, equals, value = text.partition("=")
        section, _, name = key.strip().partition(".")
        known = [f"{one}.{name}" for one, keys in _SECTIONS.items() for name in keys]
        if not equals or f"{section}.{name}" not in known:
            told = f"unknown key{similar(key.strip(), known)}" if equals else "has no value"
            raise LocalError(
                argument("settings", key.strip()), told,
                "SECTION.KEY=VALUE, of cc, switch and pds (docs/reference/keys.md)", id="wrong-format"
            )  # fmt: skip
        if (option := _BY_OPTION.get(f"{section}.{name}")) is not None:
            raise LocalError(
                argument("settings", key.strip()), "has an argument of its own", argument(option),
                id="conflicting-arguments"
            )  # fmt: skip
        found[section][name] = _checked(key.strip(), value.strip(), _SECTIONS[section][name])
    section = "cc"
    try:
        CcConfig(**found[section])
        section = "switch"
        switch = SwitchConfig(**found[section])
        section = "pds"
        return StudySettings(found["cc"], switch, replace(pds, **found[section]))
    except LocalError as error:
        raise LocalError(
            argument("settings", f"{section}.{error.name}"), error.value, error.legal, id=error.id
        ) from None


def _checked(key: str, value: str, kind: KeyType) -> Any:
    try:
        raw = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        raw = value
    if kind.unit in (TIME, RATE) and type(raw) is int and raw:
        raise LocalError(argument("settings", key), f"{raw} has no unit", kind.legal, id="missing-unit")
    try:
        return kind.check(raw)
    except ValueError:
        raise LocalError(
            argument("settings", key), f"{value!r} is not legal{similar(value, kind.names)}", kind.legal,
            id=unfit(value, kind.names)
        ) from None  # fmt: skip
