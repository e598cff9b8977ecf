# SPDX-License-Identifier: GPL-2.0-only
"""This program lets Wireshark capture from the emulator: it lists two interfaces, and writes their packets to a pipe.

Wireshark starts it with the options of its extcap protocol. `uet-scenario` plays a scenario, `uet-traffic` generates
the traffic of a profile; the options of an interface say which one. Time is virtual: the capture is there at once.
"""

import contextlib
import io
import os
import sys
import tomllib
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[1]
SCENARIOS = PACKAGE / "emulator" / "scenarios"
PROFILES = PACKAGE / "traffic" / "profiles"


class VirtualInterface(NamedTuple):
    """Wireshark shows this interface. `option` is the option that says what it carries."""

    value: str
    display: str
    option: str
    default: str


INTERFACES = (
    VirtualInterface("uet-scenario", "UET: a scenario of uetproto", "scenario", "gradient-lossy"),
    VirtualInterface("uet-traffic", "UET: generated traffic of uetproto", "profile", "mixed"),
)


def names(interface: VirtualInterface) -> list[str]:
    """Return what the interface can carry: names of scenarios, or of profiles."""
    if interface.option == "scenario":
        return sorted(path.stem for path in SCENARIOS.glob("*.toml"))
    profiles = {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in PROFILES.glob("*.toml")}
    return sorted(name for name, keys in profiles.items() if "security" not in keys)  # its keys could not be kept


def listed() -> Iterator[str]:
    yield "extcap {version=1.0}{display=uetproto}"
    for interface in INTERFACES:
        yield f"interface {{value={interface.value}}}{{display={interface.display}}}"


def config(interface: VirtualInterface) -> Iterator[str]:
    """Return the options of an interface, as Wireshark's dialog shows them."""
    title = interface.option.capitalize()
    yield (f"arg {{number=0}}{{call=--{interface.option}}}{{display={title}}}{{type=selector}}"
           f"{{tooltip=What the interface carries}}{{default={interface.default}}}")  # fmt: skip
    for name in names(interface):
        chosen = str(name == interface.default).lower()
        yield f"value {{arg=0}}{{value={name}}}{{display={name}}}{{default={chosen}}}"
    yield "arg {number=1}{call=--seed}{display=Seed}{type=string}{tooltip=Seed of all random choices; empty: its own}"
    if interface.option == "profile":
        yield "arg {number=2}{call=--packets}{display=Packets}{type=unsigned}{default=1000}{tooltip=How many packets}"


def capture(interface: VirtualInterface, what: str, options: list[str], fifo: str) -> int:
    """Write what an interface carries to a pipe, and return an exit status.

    What the command reports is shown only if it fails: Wireshark makes a warning of each line. The pipe is opened
    before anything is refused, because Wireshark waits for that without end.
    """
    command = "run" if interface.option == "scenario" else "generate"
    try:
        with open(fifo, "wb", buffering=0) as pipe:
            if what not in names(interface):
                print(f"unknown {interface.option}: {what}; uetproto {command} --help names them", file=sys.stderr)
                return 2
            os.dup2(pipe.fileno(), 1)
    except OSError as error:
        print(f"--fifo: {fifo or 'no path'}: {error.strerror}", file=sys.stderr)
        return 2
    from uetproto.cli.main import cli

    arguments = [command, what, *options]
    report = io.StringIO()
    with contextlib.redirect_stderr(report):
        status = cli.status([*arguments, "-o", "-"])
    os.close(1)
    if status:
        sys.stderr.write(report.getvalue())
    return status


def main(arguments: list[str]) -> int:
    parser = ArgumentParser("uetproto-extcap", description=__doc__, allow_abbrev=False)
    for flag in ("interfaces", "config", "dlts"):
        parser.add_argument(f"--extcap-{flag}", action="store_true")
    for value in ("interface", "capture-filter", "version"):
        parser.add_argument(f"--extcap-{value}", default="")
    parser.add_argument("--capture", action="store_true")
    for value in ("fifo", "scenario", "profile", "seed", "packets"):
        parser.add_argument(f"--{value}", default="")
    given, _ = parser.parse_known_args(arguments)
    if given.extcap_interfaces:
        print("\n".join(listed()))
        return 0
    interface = next((one for one in INTERFACES if one.value == given.extcap_interface), None)
    if interface is None:
        print(f"unknown interface: {given.extcap_interface!r}", file=sys.stderr)
        return 2
    if given.extcap_config:
        print("\n".join(config(interface)))
    elif given.extcap_dlts:
        print("dlt {number=1}{name=EN10MB}{display=Ethernet}")
    elif given.capture:
        what = getattr(given, interface.option) or interface.default
        seed = ["--seed", given.seed] if given.seed else []
        packets = ["--packets", given.packets or "1000"] if interface.option == "profile" else []
        return capture(interface, what, [*packets, *seed], given.fifo)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
