# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto wireshark`: where the dissector is, and where it goes."""

from pathlib import Path

import pytest

from tests.support.cli.frames import invoke
from uetproto.errors import LocalError
from uetproto.wireshark import PLUGIN, personal, profile


def test_path_is_the_shipped_file() -> None:
    result = invoke("wireshark", "path")
    assert result.exit_code == 0
    assert Path(result.output.strip()) == PLUGIN
    assert PLUGIN.read_text(encoding="utf-8").startswith("-- Ultra Ethernet Transport")


def test_an_ack_is_called_so() -> None:
    """Variants of a form share one branch, with the title of the form without a suffix."""
    text = PLUGIN.read_text(encoding="utf-8")
    assert 'title = "ACK",' in text
    assert "ACK of a close" not in text


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
    assert personal.plugin_folder() == Path("appdata", "Wireshark", "plugins")
    monkeypatch.delenv("APPDATA")
    with pytest.raises(LocalError, match="--dir"):
        personal.plugin_folder()


def test_install_keeps_a_file_that_is_no_plugin(tmp_path: Path) -> None:
    (tmp_path / "uetproto.lua").write_text("-- mine\n")
    result = invoke("wireshark", "install", "--dir", str(tmp_path))
    assert result.exit_code == 2
    assert "kept" in result.output
    assert (tmp_path / "uetproto.lua").read_text() == "-- mine\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without anything of Wireshark, and no tshark on the path."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    return tmp_path


def everything(home: Path) -> set[str]:
    return {path.name for path in home.rglob("*") if path.is_file()}


def test_install_and_uninstall_leave_nothing(home: Path) -> None:
    assert invoke("wireshark", "uninstall").output == "nothing is installed\n"
    result = invoke("wireshark", "install", "--profile", "--extcap")
    assert result.exit_code == 0
    assert everything(home) == {"uetproto.lua", "uetproto-extcap", "uetproto.json", *profile.files()}
    assert "sudo" not in result.output, "what this Wireshark does not ask for"
    (personal.profile_folder() / "recent").write_text("what Wireshark adds")
    result = invoke("wireshark", "uninstall")
    assert result.output.count("removed: ") == 3
    assert everything(home) == set()


def test_a_profile_of_the_user_is_kept(home: Path) -> None:
    folder = personal.profile_folder()
    folder.mkdir(parents=True)
    (folder / "preferences").write_text("mine")
    for command in (["install", "--profile"], ["uninstall"]):
        result = invoke("wireshark", *command)
        assert result.exit_code == 0
        assert f"kept: {folder}" in result.output
        assert [path.name for path in folder.iterdir()] == ["preferences"]
        assert (folder / "preferences").read_text() == "mine"


def test_what_the_user_changed_in_our_profile_is_kept(home: Path) -> None:
    invoke("wireshark", "install", "--profile")
    folder = personal.profile_folder()
    (folder / "colorfilters").write_text("mine")
    (folder / "io_graphs").unlink()
    (folder / "dfilters").write_text("mine too")
    result = invoke("wireshark", "install", "--profile")
    assert f"kept: {folder / 'colorfilters'}" in result.output
    assert (folder / "io_graphs").exists(), "what is missing comes back"
    result = invoke("wireshark", "uninstall")
    assert f"kept: {folder / 'colorfilters'}" in result.output
    assert {path.name for path in folder.iterdir()} == {"colorfilters", "dfilters"}


def test_an_older_profile_of_ours_is_replaced(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as older:
        older.setattr(profile, "COLOURS", profile.COLOURS[:1])
        invoke("wireshark", "install", "--profile")
    path = personal.profile_folder() / "colorfilters"
    before = path.read_text()
    result = invoke("wireshark", "install", "--profile")
    assert "kept" not in result.output
    assert len(path.read_text()) > len(before)


def test_colouring_rules_of_the_user_stand_below_ours(home: Path) -> None:
    personal.config_folder().mkdir(parents=True)
    mine = "@Mine@tcp.port == 1@[1,2,3][4,5,6]"
    (personal.config_folder() / "colorfilters").write_text(f"# a comment\n{mine}\n")
    invoke("wireshark", "install", "--profile")
    lines = (personal.profile_folder() / "colorfilters").read_text().splitlines()
    assert lines[-1] == mine
    assert len(lines) == len(profile.COLOURS) + 1


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["install", "--help"], ["path", "--help"], ["uninstall", "--help"], ["doctor", "--help"]],
)
def test_help_has_an_example(arguments: list[str]) -> None:
    assert "Example:" in invoke("wireshark", *arguments).output
