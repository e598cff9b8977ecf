# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto wireshark doctor`: what is wrong is named, with a way to mend it."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli.frames import invoke
from tests.support.interop.tshark import folder, needs_tshark
from uetproto.wireshark import PLUGIN, doctor, personal

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for tshark is a shell script")

STAND_IN = """#!/bin/sh
case "$*" in
-v) echo "TShark (Wireshark) {version}"; echo "compiled {lua} Lua 5.4" ;;
"-G folders") cat <<END
Personal configuration:	{home}/.config/wireshark
Global configuration:	{home}/share
Personal Lua Plugins:	{home}/.local/lib/wireshark/plugins
Global Lua Plugins:  	{home}/lib/plugins
{extcap}
END
;;
"-G plugins") find {home} -name "*.lua" | sed "s,^.*$,x.lua\t\tlua script\t&," ; echo "{error}" >&2 ;;
*frame.protocols*) echo "{protocols}" ;;
esac
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which everything is installed, and a tshark that says what `stand_in` tells it to say."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    stand_in(tmp_path)
    assert invoke("wireshark", "install", "--profile", "--extcap").exit_code == 0
    fast = f"#!/bin/sh\n# {personal.EXTCAP_MODULE}, without starting Python\necho uet-scenario\n"
    (personal.extcap_folder() / personal.EXTCAP).write_text(fast)
    return tmp_path


def stand_in(home: Path, **changes: str) -> None:
    said = {"version": "4.4.18", "lua": "with", "error": "", "protocols": "eth:ethertype:ip:udp:uetp",
            "extcap": f"Personal Extcap path:\t{home}/.local/lib/wireshark/extcap\n"
                      f"Global Extcap path:\t{home}/lib/extcap"}  # fmt: skip
    path = home / "bin" / "tshark"
    path.parent.mkdir(exist_ok=True)
    path.write_text(STAND_IN.format(home=home, **said | changes))
    path.chmod(0o755)


def examined() -> dict[str, Any]:
    result = invoke("wireshark", "doctor", "--json")
    report: dict[str, Any] = json.loads(result.output)
    assert result.exit_code == (0 if report["ok"] else 1)
    assert all(check["mend"] for check in report["checks"] if check["status"] != "ok"), "each says how to mend it"
    return report


def found(status: str) -> dict[str, str]:
    return {check["name"]: check["text"] for check in examined()["checks"] if check["status"] == status}


def test_all_is_well(home: Path) -> None:
    report = examined()
    assert report["ok"]
    assert report["version"] == "4.4.18"
    assert {check["status"] for check in report["checks"]} == {"ok"}
    text = invoke("wireshark", "doctor")
    assert text.exit_code == 0
    assert "ok    loaded" in text.output


def test_no_tshark(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home / "nowhere"))
    assert set(found("wrong")) == {"program"}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"version": "unknown"}, "program"),
        ({"lua": "without"}, "lua"),
        ({"error": "tshark: Lua: Error during loading: x.lua:7: no"}, "loaded"),
        ({"protocols": "eth:ethertype:ip:udp:data"}, "loaded"),
    ],
)
def test_what_tshark_says_is_wrong(home: Path, changes: dict[str, str], name: str) -> None:
    stand_in(home, **changes)
    assert set(found("wrong")) == {name}


def test_an_old_version_is_a_note(home: Path) -> None:
    stand_in(home, version="3.6.2")
    assert set(found("note")) == {"version"}


@pytest.mark.parametrize(("version", "status"), [("4.0.17", "note"), ("4.2.0", "note"), ("4.4.0", "wrong")])
def test_root(home: Path, monkeypatch: pytest.MonkeyPatch, version: str, status: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    stand_in(home, version=version)
    assert "root" in found(status)["user"]


@pytest.mark.parametrize("line", ["enable_lua = false", "disable_lua = true; do return end"])
@pytest.mark.parametrize("place", ["share", ".config/wireshark"])
def test_lua_switched_off(home: Path, place: str, line: str) -> None:
    path = home / place / "init.lua"
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(f"-- enable_lua = false\n{line}\n")
    assert f"{path}:2: {line}" in found("wrong")["init.lua"]


def test_root_may_not_run_scripts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "share").mkdir()
    (home / "share" / "init.lua").write_text("run_user_scripts_when_superuser = false\n")
    assert "init.lua" not in found("wrong")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    stand_in(home, version="4.0.17")
    assert "root may not" in found("wrong")["init.lua"]


def test_no_plugin(home: Path) -> None:
    (personal.plugin_folder() / PLUGIN.name).unlink()
    assert "not installed" in found("wrong")["plugin"]


def test_an_old_copy_and_two_copies(home: Path) -> None:
    mine = personal.plugin_folder() / PLUGIN.name
    other = home / "lib" / "plugins" / "deep" / "uet.lua"
    other.parent.mkdir(parents=True)
    shutil.copyfile(mine, other)
    assert "2 copies" in found("note")["copies"]
    mine.write_text(mine.read_text() + "-- old\n")
    wrong = found("wrong")
    assert str(mine) in wrong["plugin"]
    assert str(other) in wrong["copies"]
    other.unlink()
    assert set(found("wrong")) == {"plugin"}


def test_profiles(home: Path) -> None:
    path = personal.profile_folder()
    (path / "io_graphs").unlink()
    assert "lacks" in found("wrong")["profile"]
    (path / "io_graphs").write_text("mine")
    assert "io_graphs" in found("ok")["profile"]
    (path / personal.MARK).unlink()
    assert "your own" in found("note")["profile"]
    shutil.rmtree(path)
    assert "not installed" in found("note")["profile"]


def test_extcap(home: Path) -> None:
    path = personal.extcap_folder() / personal.EXTCAP
    path.write_text(f"#!/bin/sh\necho {personal.EXTCAP_MODULE} is gone >&2\n")
    assert "is gone" in found("wrong")["extcap"]
    path.unlink()
    assert "not installed" in found("note")["extcap"]


def test_extcap_of_a_version_without_a_personal_folder(home: Path) -> None:
    stand_in(home, version="4.0.17", extcap="Extcap path:\t/usr/lib/wireshark/extcap")
    link = f"sudo ln -sf {personal.extcap_folder() / personal.EXTCAP} /usr/lib/wireshark/extcap/"
    mends = [check["mend"] for check in examined()["checks"] if check["name"] == "extcap"]
    assert mends == [link]
    assert link in invoke("wireshark", "install", "--extcap").output


def test_the_link_that_uninstall_leaves(home: Path) -> None:
    system = home / "system"
    system.mkdir()
    stand_in(home, version="4.0.17", extcap=f"Extcap path:\t{system}")
    path = system / personal.EXTCAP
    path.symlink_to(personal.extcap_folder() / personal.EXTCAP)
    assert "extcap" in found("ok")
    command = f"sudo rm {path}"
    assert command in invoke("wireshark", "uninstall").output
    assert command in [check["mend"] for check in examined()["checks"] if check["name"] == "extcap"]
    path.unlink()
    assert "sudo" not in invoke("wireshark", "uninstall").output


@needs_tshark
def test_the_real_tshark(monkeypatch: pytest.MonkeyPatch) -> None:
    with folder() as path:
        monkeypatch.setenv("HOME", str(path))
        monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
        assert invoke("wireshark", "install").exit_code == 0
        report = doctor.examine()
        checks = {check.name: check for check in report.checks}
        assert report.version[:2] in ("4.", "5.")
        assert checks["plugin"].text == str(personal.plugin_folder() / PLUGIN.name)
        assert checks["loaded"].status == (doctor.WRONG if checks["user"].status == doctor.WRONG else doctor.OK)
