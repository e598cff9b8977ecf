"""`uetproto wireshark`: where the dissector is, and where it goes."""

from pathlib import Path

import pytest

from tests.support.cli.frames import invoke
from uetproto.cli import wireshark
from uetproto.errors import LocalError
from uetproto.wireshark import PLUGIN


def test_path_is_the_shipped_file() -> None:
    result = invoke("wireshark", "path")
    assert result.exit_code == 0
    assert Path(result.output.strip()) == PLUGIN
    assert PLUGIN.read_text(encoding="utf-8").startswith("-- Ultra Ethernet Transport")


def test_install_into_the_personal_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    result = invoke("wireshark", "install")
    target = tmp_path / ".local" / "lib" / "wireshark" / "plugins" / "uetproto.lua"
    assert result.exit_code == 0
    assert str(target) in result.output
    assert "root" in result.output
    assert target.read_bytes() == PLUGIN.read_bytes()


def test_install_elsewhere_and_again(tmp_path: Path) -> None:
    for _ in range(2):
        result = invoke("wireshark", "install", "--dir", str(tmp_path / "plugins"))
        assert result.exit_code == 0
    assert (tmp_path / "plugins" / "uetproto.lua").read_bytes() == PLUGIN.read_bytes()


def test_folder_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("APPDATA", "appdata")
    assert wireshark.plugin_folder() == Path("appdata", "Wireshark", "plugins")
    monkeypatch.delenv("APPDATA")
    with pytest.raises(LocalError, match="--dir"):
        wireshark.plugin_folder()


@pytest.mark.parametrize("arguments", [["--help"], ["install", "--help"], ["path", "--help"]])
def test_help_has_an_example(arguments: list[str]) -> None:
    assert "Example:" in invoke("wireshark", *arguments).output
