# SPDX-License-Identifier: GPL-2.0-only
"""This module has the secure domain of a scenario on a real link, with this end as its member."""

from dataclasses import replace
from ipaddress import ip_address

from uetproto import LocalError
from uetproto.emulator.scenario.settings import Scenario
from uetproto.framing.security import Security


def member_of_scenario(scenario: Scenario, node: str, local: str, peer: str | None) -> Security | None:
    """Return the secure domain of a scenario with one member, a node that lives at a local address. The address of the
    other one, if it is not known yet, is added by `introduce`."""
    security, run = scenario.security, scenario.run
    if security is None:
        return None
    member, here = security.members[node], int(ip_address(local))
    ssis, servers = member.domain.ssis, member.domain.servers
    if servers and scenario.nodes[run.target].address not in servers:
        legal = "the target is the server"
        raise LocalError("SCENARIO", f"{scenario.name} has security.server {run.initiator}", legal, id="wrong-scenario")
    at_server = {here} if node == run.target else {int(ip_address(peer or local))}
    domain = replace(
        member.domain, ssis={here: ssis[scenario.nodes[node].address]} if ssis else {},
        servers=frozenset(at_server if servers else ()),
    )  # fmt: skip
    found = replace(security, members={node: replace(member, domain=domain)})
    if peer is not None:
        introduce(found, scenario, node, peer)
    return found


def introduce(security: Security, scenario: Scenario, node: str, peer: str) -> None:
    """Tell a member the SSI of the other node of a scenario, which lives at the address of a peer."""
    run, ssis = scenario.run, security.domain.ssis
    if ssis and scenario.security is not None:
        other = scenario.nodes[run.initiator if node == run.target else run.target].address
        assert isinstance(ssis, dict)
        ssis[int(ip_address(peer))] = scenario.security.domain.ssis[other]
