# SPDX-License-Identifier: GPL-2.0-only
"""This module has profiles of UET traffic: SES operations in the delivery modes of PDS, in clear or sealed."""

from collections.abc import Mapping
from dataclasses import dataclass

from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.contract import MICROSECOND, MILLISECOND, PDC_MODES, Mode
from uetproto.engine.pds.trains import split_of
from uetproto.engine.ses.profiles import OPTIMIZED_FORMS, profile_of
from uetproto.engine.train_splits import Split
from uetproto.framing.uet import Encapsulation
from uetproto.knobs import KeyType, keys_of
from uetproto.toml.values import choice, integer
from uetproto.traffic import profile_security
from uetproto.traffic.profile_file import (
    ABOUT,
    COMMON,
    MAX_CONNECTIONS,
    SHARE,
    Mix,
    ProfileFile,
    TrafficProfile,
    mix_of,
)
from uetproto.traffic.profile_security import SecuritySection
from uetproto.wire.headers.uet_ses import ATOMICS, OPCODE_PROFILES, SYNCS, Opcode, Selects

_CONSEQUENCES = {Opcode.DEFERRABLE_RTR, Opcode.MSG_ERROR}
"""Opcodes of requests that an endpoint makes itself as a consequence of others. No application submits them."""
CHOICES: dict[str, Opcode] = {code.name.lower(): code for code in OPCODE_PROFILES if code not in _CONSEQUENCES}
"""Operations that a profile can ask for, by name."""
MODES: dict[str, Mode] = {mode.name.lower(): mode for mode in Mode}
MAX_PROCESSES = 65_536
"""Largest number of processes of all endpoints together. An endpoint has one process for each job, and a process takes
about 8 KiB of memory."""

KEYS: dict[str, KeyType] = {
    **ABOUT,
    "operations": mix_of(CHOICES).says("The operations, with their shares; the key is required."),
    "modes": mix_of(MODES).says("The delivery modes, with their shares; the key is required."),
    **COMMON,
    "jobs": integer(1, 4096).says("The jobs; each has a process at every endpoint.", "1"),
    "encapsulation": choice({"udp": True, "native": False}).says("How UET packets travel over IP.", "udp"),
    "trim": SHARE.says("The share of data packets that are trimmed.", "0.0"),
}
TABLES = {"pds": keys_of(PdsConfig), "ses": keys_of(SesConfig), profile_security.SECTION: profile_security.KEYS}
"""Keys of each section: the parameters of all endpoints (pds.md §17, ses.md §16), and their security."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UetProfile(TrafficProfile):
    """This record holds a profile of UET.

    Its protocol errors are requests for a job, process, index, key or address that does not exist.
    """

    operations: Mix[Opcode]
    modes: Mapping[Mode, float]
    jobs: int = 1
    how: Encapsulation
    pds: PdsConfig
    ses: SesConfig

    @property
    def encapsulated(self) -> str:
        how = self.how
        return f"udp, port {how.udp_port}" if how.udp else f"native, IP protocol {how.ip_protocol}"

    @property
    def crc(self) -> bool:
        return self.how.crc

    @property
    def split(self) -> Split | None:
        return split_of(self.pds) if any(mode in self.modes for mode in PDC_MODES) else Split.MODE


def read(file: ProfileFile) -> UetProfile:
    values = file.values(KEYS, TABLES, "operations", "modes", "sizes")
    operations = Mix[Opcode](values.pop("operations"))
    modes = {mode: share for mode, share in values.pop("modes").items() if share}
    how = Encapsulation(udp=values.pop("encapsulation", True), crc=values.pop("crc", True))
    endpoints = values.get("endpoints", 2)
    pdcs = values.get("pdcs", 1) * endpoints * len(PDC_MODES)
    # The quarantine of PDCIDs is the lifetime of packets here; with a longer one, frequent closing would use up all
    # PDCIDs.
    life = max(MILLISECOND, 100 * values.get("delay", MICROSECOND))
    section = SecuritySection(file)
    most = min(max(1000, pdcs), MAX_CONNECTIONS)
    pds = file.config(PdsConfig, "pds", {"max_pdcs": most, "msl": life, **section.implied()})
    room = max(256, values.get("depth", 8) * endpoints)
    sync = any(code in SYNCS for code in operations.things)
    ses = file.config(SesConfig, "ses", {"tx_size": room, "rx_size": room, "sync_operations": sync})
    profile = UetProfile(
        name=file.path.stem, operations=operations, modes=modes, sizes=Mix(values.pop("sizes")), how=how,
        pds=pds, ses=ses, security=section.security(endpoints, values.get("ip", 4), pds), **values,
    )  # fmt: skip
    _possible(file, profile)
    return profile


def _possible(file: ProfileFile, profile: UetProfile) -> None:
    """Raise `LocalError` for keys that contradict each other."""
    modes = ", ".join(mode.name.lower() for mode in profile.modes)
    has = profile_of(profile.ses.profile)
    for code in profile.operations.things:
        row, where = OPCODE_PROFILES[code], f"operations.{code.name.lower()}"
        if not row.modes & profile.modes.keys():
            legal = ", ".join(mode.name.lower() for mode in sorted(row.modes))
            raise file.refuse_mix(where, "modes", f"none of the modes {modes} carries it", legal, id="not-with-mode")
        if not row.profiles & has:
            message = f"is not of the profile {profile.ses.profile} (ses.profile)"
            raise file.refuse_mix(where, "ses.profile", message, id="not-with-mode")
    for mode in profile.modes:
        if not any(mode in OPCODE_PROFILES[code].modes for code in profile.operations.things):
            legal = ", ".join(name for name, code in CHOICES.items() if mode in OPCODE_PROFILES[code].modes)
            message = f"none of the operations can use it; it carries {legal}"
            raise file.refuse_mix(f"modes.{mode.name.lower()}", "operations", message, id="not-with-mode")
    most = profile.pdcs * (profile.endpoints - profile.initiators) * len(PDC_MODES)
    if most > profile.pds.max_pdcs:
        raise file.refuse(
            "pdcs", f"an endpoint would need {most} PDCs, pds.max_pdcs is {profile.pds.max_pdcs}", id="too-many"
        )
    _room(file, profile)
    if profile.ses.optimized_headers and not has & OPTIMIZED_FORMS:
        raise file.refuse(
            "ses.optimized_headers", f"is not of the profile {profile.ses.profile} (ses.profile)", id="not-with-mode"
        )


def _room(file: ProfileFile, profile: UetProfile) -> None:
    """Raise `LocalError` for values that are too large for queues, messages or memory."""
    processes, ses = profile.jobs * profile.endpoints, profile.ses
    if processes > MAX_PROCESSES:
        message = f"{profile.jobs} jobs at {profile.endpoints} endpoints are {processes:,} processes"
        legal = f"{MAX_PROCESSES // profile.endpoints} jobs with so many endpoints"
        raise file.refuse_mix(
            "jobs", "endpoints", message, f"at most {MAX_PROCESSES:,}, {legal}", id="inconsistent-values"
        )
    if ses.tx_size < profile.depth:
        raise file.refuse_mix(
            "ses.tx_size", "depth", f"{ses.tx_size} is less than depth", f"{profile.depth} and more",
            id="inconsistent-values"
        )  # fmt: skip
    received = [code for code in profile.operations.things if OPCODE_PROFILES[code].selects is Selects.RECEIVE]
    needed = profile.depth * profile.initiators
    if received and ses.rx_size < needed:
        message = f"{ses.rx_size} is less than what can be open to a target, depth × initiators"
        raise file.refuse_mix("ses.rx_size", "depth", message, f"{needed} and more", id="inconsistent-values")
    sends = [code for code in received if code not in ATOMICS and code is not Opcode.DATAGRAM_SEND]
    if sends and profile.largest > ses.max_msg_size:
        message = f"{profile.largest} bytes do not go into one {sends[0].name.lower()}"
        legal = f"up to {ses.max_msg_size} bytes (ses.max_msg_size)"
        raise file.refuse_mix("sizes", "ses.max_msg_size", message, legal, id="inconsistent-values")
