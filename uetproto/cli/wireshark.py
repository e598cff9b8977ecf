"""This module has the command `uetproto wireshark`: it installs the Wireshark dissector, or prints its path."""

import os
import shutil
import sys
from pathlib import Path

import click

from uetproto import LocalError
from uetproto.wireshark import PLUGIN

ROOT_CAVEAT = "Run tshark and Wireshark as an ordinary user: as root, versions from 4.4 on silently ignore Lua."


def plugin_folder() -> Path:
    """Return Wireshark's folder for personal plugins. Raises `LocalError` on Windows without APPDATA."""
    if sys.platform == "win32":
        appdata = os.environ.get("APPDATA")
        if not appdata:
            raise LocalError("APPDATA is not set; name the folder with --dir")
        return Path(appdata) / "Wireshark" / "plugins"
    return Path.home() / ".local" / "lib" / "wireshark" / "plugins"


@click.group(
    epilog="""\b
Example:
  uetproto wireshark install
  tshark -X lua_script:$(uetproto wireshark path) -r gradient.pcapng -Y uetp.pds.nack"""
)
def command() -> None:
    """Install or locate the dissector for Wireshark and tshark: one Lua file, protocol `uetp`.

    Every field is a display filter: uetp. + form + field, as in uetp.pds.ack.cack_psn.

    \b
    Useful filters:
      uetp.pds.nack                         refused packets
      uetp.pds.rod_req.retx == 1            retransmissions
      uetp.crc.status == 0                  wrong CRC32C
      uetp.trimmed                          packets that a switch trimmed
      uetp.ses.response.return_code > 1     error responses
      uetp.expert.malformed                 packets that contradict themselves
      uetp.request_in, uetp.answer_in       frame numbers of request and answer
      uetp.sharp.opcode == 0x7f             aggregation that failed
      uetp.sealed                           sealed packets, which uetproto open opens; uetp.tss.sdi == 1
      uetp.origin                           headers whose layout is not published

    \b
    No header announces these over RoCE; a preference, off by default, enables each:
      -o uetp.sharp:TRUE                    SHARP messages: uetp.sharp
      -o uetp.mcast:TRUE                    immediates of multicast: uetp.mcast.task_id, uetp.mcast.chunk_id
    """


@command.command(
    epilog="""\b
Example:
  uetproto wireshark install
  uetproto wireshark install --dir /usr/lib/x86_64-linux-gnu/wireshark/plugins"""
)
@click.option("--dir", "folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Folder to install to; default: that of personal plugins.")  # fmt: skip
def install(folder: Path | None) -> None:
    """Copy the dissector to Wireshark's folder of personal plugins."""
    target = (folder or plugin_folder()) / PLUGIN.name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(PLUGIN, target)
    click.echo(f"installed: {target}")
    click.echo(ROOT_CAVEAT)


@command.command(
    epilog="""\b
Example:
  tshark -X lua_script:$(uetproto wireshark path) -r gradient.pcapng"""
)
def path() -> None:
    """Print the path of the dissector, to load it without installing it."""
    click.echo(PLUGIN)
