# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto wireshark`: it installs dissector, profile and extcap, and looks at them."""

import json
from pathlib import Path

import click

from uetproto.wireshark import PLUGIN, personal, profile

ROOT_CAVEAT = "Run tshark and Wireshark as an ordinary user: as root, versions from 4.4 on silently ignore Lua."


@click.group(
    epilog="""\b
Example:
  uetproto wireshark install --profile && wireshark -C UET gradient.pcapng
  uetproto wireshark doctor
  tshark -X lua_script:$(uetproto wireshark path) -r gradient.pcapng -Y uetp.nack_code"""
)
def command() -> None:
    """Install, examine or locate the dissector for Wireshark and tshark: a Lua file, protocol `uetp`.

    Every field is a display filter: uetp. + form + field, as in uetp.pds.ack.cack_psn. Names over forms, such as
    uetp.psn, are the same in all headers.

    \b
    Useful filters:
      uetp.pdc == 3                         one connection, both directions
      uetp.nack_code                        refused packets
      uetp.analysis.retransmission          packets that were sent again
      uetp.acked_in, uetp.acks              frame numbers: the ACK of a packet, the packets of an ACK
      uetp.msg == 5, uetp.msg.time > 0.001  one message, slow messages
      uetp.crc.status == 0                  wrong CRC32C
      uetp.trimmed                          packets that a switch trimmed
      uetp.return_code > 1                  error responses
      uetp.expert.malformed                 packets that contradict themselves
      uetp.sharp.opcode == 0x7f             aggregation that failed
      uetp.sealed                           sealed packets, which uetproto open opens; uetp.tss.sdi == 1
      uetp.origin                           headers whose layout is not published

    \b
    No header announces these over RoCE; a preference, off by default, enables each:
      -o uetp.sharp:TRUE                    SHARP messages: uetp.sharp
      -o uetp.mcast:TRUE                    immediates of multicast: uetp.mcast.task_id, uetp.mcast.chunk_id

    \b
    Statistics: tshark -q -z uetp,pdc  -z uetp,msg  -z uetp,srt  -z uetp,nack
    """


@command.command(
    epilog="""\b
Example:
  uetproto wireshark install
  uetproto wireshark install --profile --extcap
  uetproto wireshark install --dir /usr/lib/x86_64-linux-gnu/wireshark/plugins"""
)
@click.option("--dir", "folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Folder to install the dissector to; default: that of personal plugins.")  # fmt: skip
@click.option("--profile", "with_profile", is_flag=True,
              help=f"Also install the profile {profile.NAME}: columns, colours, filter buttons, graphs.")  # fmt: skip
@click.option("--extcap", "with_extcap", is_flag=True,
              help="Also install two interfaces, whose packets come from scenarios and traffic profiles.")  # fmt: skip
def install(folder: Path | None, with_profile: bool, with_extcap: bool) -> None:
    """Copy the dissector to Wireshark's folder of personal plugins.

    A profile of your own, and what you changed in ours, is kept.
    """
    click.echo(f"installed: {personal.install_plugin(folder or personal.plugin_folder())}")
    if with_profile:
        for line in personal.install_profile():
            click.echo(line)
    if with_extcap:
        from uetproto.wireshark.doctor import extcap_command

        program = personal.install_extcap(personal.extcap_folder())
        click.echo(f"installed: {program}")
        if further := extcap_command(program):
            click.echo(
                f"This Wireshark looks for such programs only in the folder of the system. Please run:\n  {further}"
            )
    click.echo(ROOT_CAVEAT)


@command.command(
    epilog="""\b
Example:
  uetproto wireshark uninstall"""
)
def uninstall() -> None:
    """Remove dissector, profile and extcap from the personal folders. What you changed in the profile is kept."""
    from uetproto.wireshark.doctor import unlink_command

    lines = list(personal.uninstall())
    click.echo("\n".join(lines or ["nothing is installed"]))
    if further := unlink_command():
        click.echo(f"A link in the folder of the system is left. Please run:\n  {further}")


@command.command(
    epilog="""\b
Example:
  uetproto wireshark doctor
  uetproto wireshark doctor --json | jq '.checks[] | select(.status == "wrong")'"""
)
@click.option("--tshark", "program", default="", metavar="PATH", help="The tshark to ask; default: that of $PATH.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(program: str, as_json: bool) -> int:
    """Say whether Wireshark finds the dissector, the profile and the extcap, what is wrong, and how to mend it.

    Looked at: the version, Lua, root, init.lua, copies of the dissector, whether it is loaded and shows a packet. The
    exit status is 1 if something is wrong; a note is no fault.
    """
    from uetproto.wireshark.doctor import OK, examine

    report = examine(program)
    if as_json:
        click.echo(json.dumps(report.as_dict()))
        return 0 if report.ok else 1
    for check in report.checks:
        click.echo(f"{check.status:<6}{check.name:<10}{check.text}")
        if check.mend and check.status != OK:
            click.echo(f"{'':16}→ {check.mend}")
    return 0 if report.ok else 1


@command.command(
    epilog="""\b
Example:
  tshark -X lua_script:$(uetproto wireshark path) -r gradient.pcapng"""
)
def path() -> None:
    """Print the path of the dissector, to load it without installing it."""
    click.echo(PLUGIN)
