# SPDX-License-Identifier: GPL-2.0-only
"""This module has profiles of RoCE: work requests on queue pairs of RC, UC and UD (roce.md §6)."""

from collections.abc import Mapping
from dataclasses import dataclass

from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import Opcode, QpType
from uetproto.engine.roce.segments import ATOMICS, KINDS
from uetproto.engine.train_splits import Split
from uetproto.knobs import KeyType, keys_of
from uetproto.toml.values import choice
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

CHOICES: dict[str, Opcode] = {
    "send":         Opcode.SEND,
    "send_imm":     Opcode.SEND_WITH_IMM,
    "send_inv":     Opcode.SEND_WITH_INV,
    "write":        Opcode.RDMA_WRITE,
    "write_imm":    Opcode.RDMA_WRITE_WITH_IMM,
    "read":         Opcode.RDMA_READ,
    "compare_swap": Opcode.ATOMIC_CMP_AND_SWP,
    "fetch_add":    Opcode.ATOMIC_FETCH_AND_ADD,
}  # fmt: skip
"""Operations that a profile can ask for, by name."""

KEYS: dict[str, KeyType] = {
    **ABOUT,
    "operations": mix_of(CHOICES).says("The operations, with their shares; the key is required."),
    **COMMON,
    "encapsulation": choice({"udp": True}).says("RoCEv2 travels over UDP.", "udp"),
    "multicast": SHARE.says("The share of datagrams that are sent to a multicast group.", "0.0"),
}
TABLES = {"roce": keys_of(RoceConfig)}
"""Keys of the section [roce]: the parameters of all adapters (roce.md §14)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoceProfile(TrafficProfile):
    """This record holds a profile of RoCE.

    Its protocol errors are those of `roce_errors`. An unexpected message is one that finds no receive (roce.md §8).
    """

    operations: Mix[Opcode]
    transports: Mapping[QpType, float]
    """Shares of the transports. An operation uses one of the transports that support it."""
    multicast: float = 0.0
    """Share of datagrams that are sent to a multicast group. Each UD queue pair of a target is a member of one group.
    """
    roce: RoceConfig

    @property
    def encapsulated(self) -> str:
        return f"udp, port {self.roce_port}"

    @property
    def crc(self) -> bool:
        return self.roce.icrc

    @property
    def split(self) -> Split | None:
        return None if QpType.RC in self.transports else Split.MODE

    @property
    def roce_port(self) -> int:
        return self.roce.udp_port


def read(file: ProfileFile) -> RoceProfile:
    values = file.values(KEYS, TABLES, "operations", "sizes")
    transports = {kind: share for kind, share in values.pop("transport").items() if share}
    values.pop("encapsulation", None)
    roce = file.config(RoceConfig, "roce", {"icrc": values.pop("crc", True)})
    profile = RoceProfile(
        name=file.path.stem, transport=file.transport, transports=transports,
        operations=Mix(values.pop("operations")), sizes=Mix(values.pop("sizes")), roce=roce, **values,
    )  # fmt: skip
    _possible(file, profile)
    return profile


def _possible(file: ProfileFile, profile: RoceProfile) -> None:
    """Raise `LocalError` for keys that contradict each other."""
    has = [name for name, code in CHOICES.items() if set(KINDS[code].services) & profile.transports.keys()]
    used = {name: code for name, code in CHOICES.items() if code in profile.operations.things}
    for name in used:
        if name not in has:
            message = f"transport {profile.transport} does not have it"
            raise file.refuse_mix(f"operations.{name}", "transport", message, ", ".join(has), id="not-with-mode")
    for kind in profile.transports:
        if not any(kind in KINDS[code].services for code in used.values()):
            legal = ", ".join(name for name, code in CHOICES.items() if kind in KINDS[code].services)
            message = f"none of the operations is one of {kind.name.lower()}; it has {legal}"
            raise file.refuse_mix("transport", "operations", message, id="not-with-mode")
    if profile.multicast and QpType.UD not in profile.transports:
        message = f"transport {profile.transport} has no groups"
        raise file.refuse_mix("multicast", "transport", message, "0, or ud among the transports", id="not-with-mode")
    for name, code in used.items():
        if KINDS[code].answered and not profile.roce.max_rd_atomic:
            message = f"0 is not legal with {name}"
            raise file.refuse_mix(
                "roce.max_rd_atomic", f"operations.{name}", message, "1 … 255", id="inconsistent-values"
            )
    most = profile.pdcs * (profile.endpoints - profile.initiators) * len(profile.transports)
    if most > MAX_CONNECTIONS:
        raise file.refuse(
            "pdcs", f"an endpoint would need {most:,} queue pairs", f"at most {MAX_CONNECTIONS:,}", id="too-many"
        )
    limit = profile.roce.max_message
    cut = profile.transports.keys() == {QpType.UD} or all(code in ATOMICS for code in used.values())
    if profile.largest > limit and not cut:
        message = f"{profile.largest} bytes do not go into one message"
        raise file.refuse_mix(
            "sizes", "roce.max_message", message, f"up to {limit} bytes (roce.max_message)", id="inconsistent-values"
        )
