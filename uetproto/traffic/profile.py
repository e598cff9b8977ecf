# SPDX-License-Identifier: GPL-2.0-only
"""This module reads a profile, which describes traffic, from a TOML file to a validated dataclass (interfaces.md §7).

`profile_file` has the keys of all profiles. `profile_uet` and `profile_roce` have those of one transport.
"""

from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from uetproto.toml.file import Shipped
from uetproto.toml.page import KeySection
from uetproto.traffic import profile_roce, profile_security, profile_uet
from uetproto.traffic.profile_file import UET, ProfileFile, TrafficProfile

_FILES = Shipped("profile", Path(__file__).parent / "profiles")

KEYS = profile_uet.KEYS | profile_roce.KEYS
"""Keys of profiles of all transports."""
TABLES = profile_uet.TABLES | profile_roce.TABLES

SECTIONS = (
    KeySection("", "Keys of profiles with transport uet.", profile_uet.KEYS, which="over UET"),
    KeySection("pds", "Packet delivery of all endpoints: the keys of [pds] of a scenario.", which="of a profile"),
    KeySection("ses", "Semantics of all endpoints: the keys of [ses] of a scenario.", which="of a profile"),
    KeySection(
        "security",
        "The keys of [security] of a scenario, but `server`; and:",
        profile_security.KEYS,
        which="of a profile",
    ),
    KeySection("", "Keys of profiles with transport rc, uc or ud.", profile_roce.KEYS, which="over RoCE"),
    KeySection("roce", "All adapters: the keys of [roce] of a scenario.", which="of a profile"),
)
"""Sections of docs/reference/keys.md that describe all keys of a profile."""

names = _FILES.names


def load(name: str | PathLike[str], settings: Iterable[str] = ()) -> TrafficProfile:
    """Read the profile `name`, a shipped one or the path of a file, and check all values.

    `settings` are texts "key=value" that replace values of the file. Raises `LocalError` for an illegal key or value,
    and `OSError` if the file cannot be read.
    """
    file = ProfileFile(_FILES.find(name))
    file.change(settings)
    return profile_uet.read(file) if file.transport == UET else profile_roce.read(file)


def comment_of(profile: TrafficProfile) -> str:
    """Return the comment that a capture of this traffic gets (interfaces.md §3)."""
    crc = "on" if profile.crc else "off"
    about = f"uetproto generate {profile.name}, seed {profile.seed}; encapsulation {profile.encapsulated}; crc {crc}"
    security = profile.security
    return about if security is None else f"{about}; sealed, SDI {security.domain.sdi}, mode {security.domain.mode}"
