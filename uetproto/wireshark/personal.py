# SPDX-License-Identifier: GPL-2.0-only
"""This module writes what `uetproto wireshark install` installs to the personal folders of Wireshark, and removes it.

A profile is ours if a file in it says so, with the SHA-256 of each file that was written. What the user changed since
then is kept, and so is a profile of that name that the user made.
"""

import hashlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from uetproto.errors import LocalError
from uetproto.wireshark import PLUGIN, profile

MARK = "uetproto.json"
"""Name of the file that says which files of a profile this module wrote."""
TITLE = "-- Ultra Ethernet Transport for Wireshark"
"""Beginning of each version of the plugin."""
EXTCAP = "uetproto-extcap.bat" if sys.platform == "win32" else "uetproto-extcap"
EXTCAP_MODULE = "uetproto.wireshark.extcap"
_STATE = ("recent",)
"""Files that Wireshark itself adds to a profile: sizes of windows and the like."""


# Folders --------------------------------------------------------------------------------------------------------------


def _appdata() -> Path:
    appdata = os.environ.get("APPDATA")
    if not appdata:
        raise LocalError("APPDATA is not set; name the folder with --dir", id="missing-argument")
    return Path(appdata) / "Wireshark"


def plugin_folder() -> Path:
    """Return Wireshark's folder for personal plugins. Raises `LocalError` on Windows without APPDATA."""
    if sys.platform == "win32":
        return _appdata() / "plugins"
    return Path.home() / ".local" / "lib" / "wireshark" / "plugins"


def extcap_folder() -> Path:
    """Return the folder for personal extcap programs, which Wireshark has from 4.2 on."""
    return plugin_folder().with_name("extcap")


def config_folder() -> Path:
    """Return the folder of personal settings, in which the profiles are."""
    if sys.platform == "win32":
        return _appdata()
    base = os.environ.get("XDG_CONFIG_HOME")
    folder = (Path(base) if base else Path.home() / ".config") / "wireshark"
    old = Path.home() / ".wireshark"
    return old if old.is_dir() and not folder.is_dir() else folder


def profile_folder() -> Path:
    """Return the folder of our profile."""
    return config_folder() / "profiles" / profile.NAME


# Plugin ---------------------------------------------------------------------------------------------------------------


def is_plugin(path: Path) -> bool:
    """Return whether a file is our plugin, of any version."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(len(TITLE)) == TITLE
    except OSError:
        return False


def plugins(folder: Path) -> list[Path]:
    """Return the copies of the plugin in a folder of plugins and below it, where Wireshark finds them as well."""
    return sorted(path for path in folder.rglob("*.lua") if is_plugin(path))


def install_plugin(folder: Path) -> Path:
    """Copy the plugin to a folder. Raises `LocalError` if a file of that name is there that is no such plugin."""
    target = folder / PLUGIN.name
    if target.exists() and not is_plugin(target):
        raise LocalError(
            f"{target} is not a plugin of uetproto, so it is kept; move it away, or use --dir", id="file-exists"
        )
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(PLUGIN, target)
    return target


# Profile --------------------------------------------------------------------------------------------------------------


def digest(data: bytes) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def written(folder: Path) -> dict[str, str] | None:
    """Return the files of a profile that this module wrote, with their SHA-256; None if the profile is not ours."""
    try:
        files = json.loads((folder / MARK).read_text(encoding="utf-8"))["files"]
        return {str(name): str(value) for name, value in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def profile_files() -> dict[str, bytes]:
    """Return the files of the profile. The colouring rules that the user has stand below ours."""
    return {name: text.encode() for name, text in profile.files(_other_rules()).items()}


def _other_rules() -> str:
    """Return the colouring rules that hold without the profile: the user's, or those that come with Wireshark."""
    shared = ("/usr/share/wireshark", "/usr/local/share/wireshark", r"C:\Program Files\Wireshark",
              "/Applications/Wireshark.app/Contents/Resources/share/wireshark")  # fmt: skip
    for folder in (config_folder(), *map(Path, shared)):
        try:
            lines = (folder / "colorfilters").read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError):
            continue
        return "".join(f"{line}\n" for line in lines if line.startswith(("@", "!@")))
    return ""


def install_profile() -> Iterator[str]:
    """Write the profile, and yield lines that say what was done."""
    folder = profile_folder()
    before = written(folder)
    if before is None and folder.exists():
        yield f"kept: {folder}, a profile of this name that uetproto did not write; rename it to have ours"
        return
    folder.mkdir(parents=True, exist_ok=True)
    hashes = {}
    for name, data in profile_files().items():
        path = folder / name
        known = (before or {}).get(name)
        if path.exists() and known != digest(path.read_bytes()):
            yield f"kept: {path}, which was changed since it was installed"
            if known is not None:
                hashes[name] = known
            continue
        path.write_bytes(data)
        hashes[name] = digest(data)
    (folder / MARK).write_text(json.dumps({"files": hashes}, indent=1) + "\n", encoding="utf-8")
    yield f"installed: profile {profile.NAME}, {folder}"


def uninstall_profile() -> Iterator[str]:
    """Remove the profile, and yield lines that say what was removed and what was kept."""
    folder = profile_folder()
    before = written(folder)
    if before is None:
        if folder.exists():
            yield f"kept: {folder}, a profile that uetproto did not write"
        return
    for name, known in before.items():
        path = folder / name
        if path.exists() and digest(path.read_bytes()) != known:
            yield f"kept: {path}, which was changed since it was installed"
        else:
            path.unlink(missing_ok=True)
    (folder / MARK).unlink()
    if all(path.name in _STATE for path in folder.iterdir()):
        shutil.rmtree(folder)
        yield f"removed: profile {profile.NAME}, {folder}"


# Extcap ---------------------------------------------------------------------------------------------------------------


def install_extcap(folder: Path) -> Path:
    """Write the program that Wireshark starts to list our interfaces: it starts this Python."""
    target = folder / EXTCAP
    folder.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        text = f'@echo off\r\n"{sys.executable}" -m {EXTCAP_MODULE} %*\r\n'
    else:
        text = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m {EXTCAP_MODULE} "$@"\n'
    target.write_text(text, encoding="utf-8", newline="")
    target.chmod(0o755)
    return target


def is_extcap(path: Path) -> bool:
    """Return whether a file is the program that `install_extcap` writes."""
    try:
        return EXTCAP_MODULE in path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False


# All ------------------------------------------------------------------------------------------------------------------


def uninstall() -> Iterator[str]:
    """Remove plugin, profile and extcap from the personal folders, and yield lines that say what was done."""
    extcap = extcap_folder() / EXTCAP
    for path in (*plugins(plugin_folder()), *([extcap] if is_extcap(extcap) else [])):
        path.unlink()
        yield f"removed: {path}"
    yield from uninstall_profile()
