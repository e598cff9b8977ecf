# SPDX-License-Identifier: GPL-2.0-only
"""This module says whether Wireshark finds the plugin, the profile and the extcap, what is wrong, and how to mend it.

It asks tshark itself, which has the same folders and plugins as Wireshark.
"""

import os
import re
import shlex
import shutil
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from uetproto.wire.forms import FORMS
from uetproto.wire.packet import Layer, Packet
from uetproto.wire.stack import encode
from uetproto.wireshark import PLUGIN, personal, profile

OK, NOTE, WRONG = "ok", "note", "wrong"
TESTED = (4, 0)
"""Oldest version of Wireshark that the plugin is tested with."""
NO_ROOT = (4, 4)
"""Version from which on Lua scripts are ignored when root starts Wireshark."""
_LONGEST = 60  # seconds that a run of tshark may take
_ELSEWHERE = (r"C:\Program Files\Wireshark\tshark.exe", "/Applications/Wireshark.app/Contents/MacOS/tshark")
_SWITCH = re.compile(r"^\s*(?:enable_lua\s*=\s*false|disable_lua\s*=\s*true)\b")
_NO_ROOT_SCRIPTS = re.compile(r"^\s*run_user_scripts_when_superuser\s*=\s*false\b")


class Diagnosis(NamedTuple):
    """A diagnosis says what was found of one thing, and what to do if it is wrong."""

    name: str
    status: str
    text: str
    mend: str = ""


class Report(NamedTuple):
    """A report says what the doctor found. `checks` are in the order in which a person should mend them."""

    program: str
    version: str
    folders: dict[str, str]
    checks: list[Diagnosis]

    @property
    def ok(self) -> bool:
        return all(check.status != WRONG for check in self.checks)

    def as_dict(self) -> dict[str, object]:
        rows = [check._asdict() for check in self.checks]
        return {"ok": self.ok, "tshark": self.program, "version": self.version, "folders": self.folders, "checks": rows}


class Output(NamedTuple):
    """This is what a program wrote to standard output and standard error."""

    out: str
    err: str


def find_tshark() -> str:
    """Return the path of tshark, or an empty text."""
    return shutil.which("tshark") or next((path for path in _ELSEWHERE if Path(path).exists()), "")


def examine(program: str = "") -> Report:
    """Ask tshark, and return what was found."""
    program = program or find_tshark()
    if not program:
        mend = "install Wireshark or tshark, or name it: uetproto wireshark doctor --tshark PATH"
        return Report("", "", {}, [Diagnosis("program", WRONG, "tshark was not found", mend)])
    tshark = Tshark(program)
    return Report(program, tshark.version, tshark.folders, list(tshark.checks()))


class Tshark:
    """This class asks one tshark for what its own command line tells."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.banner, self.error = self.run("-v")
        found = re.search(r"(\d+)\.(\d+)\.\d+", self.banner)
        self.version = found[0] if found else ""
        self.release = (int(found[1]), int(found[2])) if found else (0, 0)
        rows = (line.partition(":") for line in self.run("-G", "folders").out.splitlines())
        self.folders = {name.strip(): value.strip() for name, _, value in rows if value.strip()}

    def run(self, *arguments: str, data: bytes = b"") -> Output:
        return _output([self.program, *arguments], data)

    def folder(self, *names: str) -> Path | None:
        """Return the first folder of these that this version has."""
        return next((Path(self.folders[name]) for name in names if name in self.folders), None)

    def checks(self) -> Iterator[Diagnosis]:
        if not self.version:
            why = "".join(f": {line}" for line in self.error.strip().splitlines()[:1])
            text = f"{self.program} does not tell its version{why}"
            yield Diagnosis("program", WRONG, text, "name another one: --tshark PATH")
            return
        if self.release < TESTED:
            text = f"{self.version} is older than what the plugin is tested with, 4.0 to 4.6"
            yield Diagnosis("version", NOTE, text, "install a newer Wireshark")
        else:
            yield Diagnosis("version", OK, f"Wireshark {self.version}, {self.program}")
        switched_off = [*self.lua(), *self.user(), *self.init()]
        yield from switched_off
        yield from self.plugin(any(check.status == WRONG for check in switched_off))
        yield self.profile()
        yield self.extcap()

    def lua(self) -> Iterator[Diagnosis]:
        if re.search(r"\bwithout\s+Lua\b", self.banner):
            yield Diagnosis("lua", WRONG, "this Wireshark was built without Lua", "install one that has Lua")
        else:
            yield Diagnosis("lua", OK, "built with Lua")

    def user(self) -> Iterator[Diagnosis]:
        if sys.platform == "win32" or os.geteuid() != 0:
            yield Diagnosis("user", OK, "not root")
        elif self.release >= NO_ROOT:
            text = "you are root: from 4.4 on, Wireshark then ignores all Lua scripts and does not say so"
            yield Diagnosis("user", WRONG, text, "start it as an ordinary user")
        else:
            text = f"you are root: {self.version} runs Lua scripts as root, but 4.4 and later ignore them"
            yield Diagnosis("user", NOTE, text, "start it as an ordinary user")

    def init(self) -> Iterator[Diagnosis]:
        """Look for the file init.lua that switches Lua off."""
        folders = ("Global configuration", "Personal configuration", "Global Lua Plugins", "Personal Lua Plugins")
        files = dict.fromkeys(
            Path(self.folders[name], "init.lua").resolve() for name in folders if name in self.folders
        )
        off = False
        for path in files:
            try:
                lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            except OSError:
                continue
            root = sys.platform != "win32" and os.geteuid() == 0
            for number, line in enumerate(lines, 1):
                if _SWITCH.match(line):
                    off = True
                    yield Diagnosis("init.lua", WRONG, f"Lua is switched off: {path}:{number}: {line.strip()}",
                                "set enable_lua = true there, or remove the line")  # fmt: skip
                elif root and _NO_ROOT_SCRIPTS.match(line):
                    off = True
                    yield Diagnosis("init.lua", WRONG, f"root may not run Lua scripts: {path}:{number}",
                                "start Wireshark as an ordinary user")  # fmt: skip
        if not off:
            yield Diagnosis("init.lua", OK, "no init.lua switches Lua off")

    # Plugin -----------------------------------------------------------------------------------------------------------

    def plugin(self, switched_off: bool) -> Iterator[Diagnosis]:
        """Look at the copies of the plugin, whether they are loaded, and whether a packet is dissected."""
        folders = [
            self.folders[name] for name in ("Global Lua Plugins", "Personal Lua Plugins") if name in self.folders
        ]
        copies = list(dict.fromkeys(copy for folder in folders for copy in personal.plugins(Path(folder))))
        if not copies:
            where = f": neither in {' nor in '.join(folders)}" if folders else ""
            yield Diagnosis("plugin", WRONG, f"the plugin is not installed{where}", "uetproto wireshark install")
            return
        old = [copy for copy in copies if copy.read_bytes() != PLUGIN.read_bytes()]
        for copy in old:
            again = "" if copy.parent == personal.plugin_folder() else f" --dir {copy.parent}"
            yield Diagnosis("plugin", WRONG, f"{copy} is another version than that of this uetproto",
                        f"uetproto wireshark install{again}, or remove it")  # fmt: skip
        if len(copies) > 1:
            text = f"there are {len(copies)} copies, of which Wireshark uses the first: {', '.join(map(str, copies))}"
            yield Diagnosis("copies", WRONG if old else NOTE, text, "remove all but one")
        elif not old:
            yield Diagnosis("plugin", OK, str(copies[0]))
        yield from self.loaded(copies, switched_off)

    def loaded(self, copies: Sequence[Path], switched_off: bool) -> Iterator[Diagnosis]:
        listed = self.run("-G", "plugins")
        wrong = re.search(r"^.*(?:Lua Error|Lua: |\.lua:\d+:).*(?:\n.*\.lua:\d+:.*)?", listed.err, re.MULTILINE)
        if wrong:
            text = " ".join(wrong[0].split())
            yield Diagnosis(
                "loaded", WRONG, f"a Lua script fails: {text}", "uetproto wireshark install, or mend that script"
            )
        elif not any(line.endswith(f"\t{copy}") for copy in copies for line in listed.out.splitlines()):
            mend = "see above" if switched_off else "tshark -G plugins shows what is loaded"
            yield Diagnosis("loaded", WRONG, "the plugin is installed, but Wireshark does not load it", mend)
        else:
            yield from self.dissected()

    def dissected(self) -> Iterator[Diagnosis]:
        seen = self.run("-n", "-r", "-", "-T", "fields", "-e", "frame.protocols", data=_packet()).out.strip()
        if seen.endswith(":uetp") or ":uetp:" in seen:
            yield Diagnosis("loaded", OK, "a packet to UDP port 4793 is shown as UET")
            return
        text = f"the plugin is loaded, but a packet to UDP port 4793 is shown as {seen or 'nothing'}"
        mend = "look at Analyze, Enabled Protocols (uetp), at Decode As, and at the preference uetp.port"
        yield Diagnosis("loaded", WRONG, text, mend)

    # Profile and extcap -----------------------------------------------------------------------------------------------

    def profile(self) -> Diagnosis:
        config = self.folder("Personal configuration")
        folder = config / "profiles" / profile.NAME if config else personal.profile_folder()
        install = "uetproto wireshark install --profile"
        files = personal.written(folder)
        if not folder.exists():
            return Diagnosis("profile", NOTE, f"the profile {profile.NAME} is not installed", install)
        if files is None:
            return Diagnosis(
                "profile", NOTE, f"{folder} is a profile of your own", f"rename it to have ours: {install}"
            )
        if any(not (folder / name).exists() for name in profile.files()):
            return Diagnosis("profile", WRONG, f"{folder} lacks files", install)
        current = personal.profile_files()
        changed = [name for name in files if personal.digest((folder / name).read_bytes()) != files[name]]
        if changed:
            return Diagnosis("profile", OK, f"{folder}; changed by you: {', '.join(changed)}")
        if any(personal.digest(data) != files.get(name) for name, data in current.items()):
            return Diagnosis("profile", NOTE, f"{folder} is older than that of this uetproto", install)
        return Diagnosis("profile", OK, str(folder))

    def extcap(self) -> Diagnosis:
        """Look for the program of our interfaces. Up to 4.0, Wireshark has no personal folder for such programs."""
        ours = self.folder("Personal Extcap path")
        system = self.folder("Global Extcap path", "Extcap path")
        places = [folder / personal.EXTCAP for folder in (system, ours) if folder]
        found = next((path for path in places if personal.is_extcap(path)), None)
        if found is None:
            written = personal.extcap_folder() / personal.EXTCAP
            if ours is None and personal.is_extcap(written):
                text = f"Wireshark {self.version} looks for extcap programs only in {system}"
                return Diagnosis("extcap", NOTE, text, link(written, system))
            if command := unlink(system):
                return Diagnosis("extcap", NOTE, f"a link in {system} shows a program that is not there", command)
            return Diagnosis("extcap", NOTE, "the interfaces of uetproto are not installed",
                         "uetproto wireshark install --extcap")  # fmt: skip
        if sys.platform != "win32" and not found.stat().st_mode & stat.S_IXOTH and not os.access(found, os.X_OK):
            return Diagnosis("extcap", WRONG, f"{found} is not executable", f"chmod 755 {found}")
        listed = _output([str(found), "--extcap-interfaces"])
        if "uet-scenario" not in listed.out:
            text = f"{found} does not run: {listed.err.strip().splitlines()[-1] if listed.err.strip() else 'no output'}"
            return Diagnosis("extcap", WRONG, text, "uetproto wireshark install --extcap")
        return Diagnosis("extcap", OK, str(found))


def link(program: Path, folder: Path | None) -> str:
    """Return the command that shows an extcap program to a Wireshark that looks only in the system's folder."""
    return shlex.join(["sudo", "ln", "-sf", str(program), f"{folder}/"])


def unlink(folder: Path | None) -> str:
    """Return the command that removes the link of `link` after its program was removed; an empty text if none is."""
    path, program = Path(folder or "", personal.EXTCAP), personal.extcap_folder() / personal.EXTCAP
    left = path.is_symlink() and path.readlink() == program and not program.exists()
    return shlex.join(["sudo", "rm", str(path)]) if left else ""


def unlink_command() -> str:
    """Return the command that a user must still run after the extcap was removed, or an empty text."""
    found = find_tshark()
    return unlink(Tshark(found).folder("Global Extcap path", "Extcap path")) if found else ""


def extcap_command(program: Path) -> str:
    """Return the command that a user of the Wireshark found here must still run, or an empty text."""
    found = find_tshark()
    tshark = Tshark(found) if found else None
    if tshark is None or tshark.folder("Personal Extcap path") or not tshark.folder("Extcap path"):
        return ""
    return link(program, tshark.folder("Extcap path"))


def _output(command: Sequence[str], data: bytes = b"") -> Output:
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=_LONGEST, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Output("", getattr(error, "strerror", None) or str(error))
    return Output(done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def _packet() -> bytes:
    """Return a capture of one ACK over UDP."""
    given = {"ethernet": {"type": 0x0800}, "ipv4": {"ttl": 64, "protocol": 17}, "udp": {"sport": 0xC000, "dport": 4793}}
    layers = [
        Layer(form, {field.name: field.default for field in FORMS[form].fields} | given.get(form, {}))
        for form in ("ethernet", "ipv4", "udp", "pds.ack")
    ]
    frame = encode(Packet(layers), fill=True)
    return struct.pack("<IHHiIIIIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1, 0, 0, len(frame), len(frame)) + frame
