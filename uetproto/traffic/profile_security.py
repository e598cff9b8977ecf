# SPDX-License-Identifier: GPL-2.0-only
"""This module reads `[security]` of a profile. All endpoints are in one secure domain (tss.md §3, interfaces.md §7).

Two keys differ from those of a scenario. `ssi` is the SSI of the first endpoint, and each further endpoint has the next
number. The key `server` does not exist, because in mode client-server the targets are the servers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from uetproto.engine.config import PdsConfig
from uetproto.engine.tss.domain import SecureDomain
from uetproto.errors import LocalError
from uetproto.framing.security import Security
from uetproto.knobs import KeyType
from uetproto.toml.security import read_section, security_of, start_of
from uetproto.toml.values import integer
from uetproto.traffic.profile_file import MAX_ENDPOINTS, ProfileFile, address_of

SECTION = "security"
KEYS: dict[str, KeyType] = {
    "ssi": integer(0, 2**32 - MAX_ENDPOINTS).says(
        "The SSI of the first endpoint; each further one has the next.", source="tss.md §3"
    )
}
"""Keys of this section that a profile has, but a scenario does not."""
_NOT_HERE = ("server",)


@dataclass(frozen=True, slots=True)
class ProfileMember:
    """This record describes an endpoint as a member of the secure domain."""

    name: str
    address: int
    ip_version: int
    pds: PdsConfig
    ssi: int | None = None


def endpoint_name(number: int) -> str:
    """Return the name that endpoint `number` has in `Security.members`."""
    return str(number)


class _AsScenario:
    """This class presents a profile to the reader of scenarios: all nodes are alike, and none has keys of its own."""

    def __init__(self, file: ProfileFile, names: tuple[str, ...] = ()) -> None:
        self._file = file
        self.data: dict[str, Any] = {**file.data, "nodes": {name: {} for name in names}}

    def table(self, path: str, keys: Mapping[str, KeyType], value: Any, nested: tuple[str, ...] = ()) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.refuse(path, "is a value", f"the table [{path}]", id="not-a-table")
        if path == SECTION:
            keys = {**{name: key for name, key in keys.items() if name not in _NOT_HERE}, **KEYS}
        return self._file.check(value, keys, f"{path}.", nested)

    def refuse(self, key: str, value: object, legal: str = "", *, id: str) -> LocalError:
        return self._file.refuse(key, value, legal, id=id)


class SecuritySection:
    """This class reads the section of one profile. `implied` returns the parameters of PDS, which are needed first, and
    `security` returns the security of the endpoints.
    """

    def __init__(self, file: ProfileFile) -> None:
        """Read the section. Raises `LocalError` for keys and values that are not legal."""
        self._file = file
        self._values = read_section(_AsScenario(file))

    def implied(self) -> dict[str, str]:
        """Return a dict with `secure_start`, the parameter of PDS that the section sets (tss.md §11). The dict is empty
        if the profile has no such section."""
        return start_of(_AsScenario(self._file), self._values)

    def security(self, endpoints: int, ip: int, pds: PdsConfig) -> Security | None:
        """Return the security of the endpoints, or None if the profile has no section `[security]`.

        Raises `LocalError` for illegal values.
        """
        values = self._values
        if values is None:
            return None
        mode, first = values.get("mode", "direct"), values.get("ssi")
        if mode == "direct" and ip == 6 and first is None:
            message = "is missing, mode direct over IPv6 needs it"
            raise self._file.refuse_mix(
                f"{SECTION}.ssi", "ip", message, "a number, such as 1, or mode cluster", id="ssi-needed"
            )
        members = [
            ProfileMember(
                endpoint_name(number), address_of(number, endpoints, ip), ip, pds,
                None if first is None else first + number,
            )
            for number in range(endpoints)
        ]  # fmt: skip
        nodes = {one.name: one for one in members}
        targets = members[endpoints // 2 :]
        security = security_of(_AsScenario(self._file, tuple(nodes)), values, nodes, targets[0].name)
        if security is None or mode != "client-server":
            return security
        return self._with_servers(security, nodes, frozenset(one.address for one in targets))

    def _with_servers(
        self, security: Security, nodes: Mapping[str, ProfileMember], servers: frozenset[int]
    ) -> Security:
        """Return the security with all targets as servers; a scenario has one server."""
        members = {
            name: replace(member, domain=replace(member.domain, servers=servers))
            for name, member in security.members.items()
        }
        try:
            for name, member in members.items():
                SecureDomain(member.domain, nodes[name].address, nodes[name].ip_version)
        except LocalError as error:
            message = f"the targets are the servers: {error.value}"
            raise self._file.refuse_mix("security.mode", "endpoints", message, error.legal, id=error.id) from None
        return replace(security, members=members)
