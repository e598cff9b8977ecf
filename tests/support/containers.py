# SPDX-License-Identifier: GPL-2.0-only
"""Images of a Dockerfile are made without docker: a stage is a folder of debootstrap, its commands run in a chroot.

This knows the instructions that our Dockerfile has, and refuses all others.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
MIRROR = "http://deb.debian.org/debian"
SCRIPTS = Path("/usr/share/debootstrap/scripts")
NETWORK = {
    "/etc/resolv.conf": "/etc/resolv.conf",
    "/etc/hosts": "/etc/hosts",
    "/etc/ssl/certs/ca-certificates.crt": "/etc/machine-certificates.pem",
}
"""Files of this machine without which a chroot reaches no package index, and where they go."""
CERTIFICATES = dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE"), "/etc/machine-certificates.pem")
PASSED = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "http_proxy", "https_proxy", "no_proxy")


class ContainerError(Exception):
    """An image could not be made, or a command in it failed; the text has what it printed."""


@dataclass
class Image:
    """A stage of a Dockerfile as a folder, and what the instructions have set for commands."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
    user: str = "root"
    folder: str = "/"
    entrypoint: list[str] = field(default_factory=list)

    def run(self, *command: str, user: str | None = None, folder: str | None = None) -> str:
        """Run a command in the image; return what it printed. Raises `ContainerError` if it fails."""
        who = user or self.user
        home = "/root" if who == "root" else f"/home/{who}"
        passed = CERTIFICATES | {name: os.environ[name] for name in PASSED if name in os.environ}
        within = [
            "env",
            "-i",
            *(f"{name}={value}" for name, value in ({"HOME": home} | passed | self.environment).items()),
        ]
        if who != "root":
            within = ["setpriv", f"--reuid={who}", "--regid=1000", "--clear-groups", *within]
        script = f"cd {shlex.quote(folder or self.folder)} && exec {shlex.join([*within, *command])}"
        chroot = f"mount -t proc proc {self.root}/proc && exec chroot {self.root} sh -c {shlex.quote(script)}"
        return _run("unshare", "--mount", "--pid", "--fork", "sh", "-c", chroot)

    def start(self, *arguments: str) -> str:
        """Run the entry point with arguments, as `docker run` does."""
        return self.run(*self.entrypoint, *arguments)

    def copy(self, place: str) -> None:
        """Copy what git knows of the tree; `.dockerignore` leaves out the rest."""
        names = _run("git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
        for name in names:
            if name and (ROOT / name).exists():
                target = self.root / place.lstrip("/") / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, target, follow_symlinks=False)


def instructions(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a Dockerfile, with what follows them."""
    text = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE))
    for line in text.splitlines():
        if line.strip():
            word, _, rest = line.partition(" ")
            yield word, rest.strip()


def build(path: Path, target: str, folder: Path) -> Image:
    """Return the stage `target` of a Dockerfile, made in `folder`. Releases of Debian are kept in the user's cache."""
    made: Image | None = None
    within = False
    for word, rest in instructions(path):
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            within = name == target
            if within:
                made = Image(_release(base, folder / name))
        elif within and made is not None:
            _apply(made, word, rest)
    if made is None:
        raise ContainerError(f"{path.name} has no stage {target}")
    return made


def _apply(image: Image, word: str, rest: str) -> None:
    if word == "RUN":
        image.run("sh", "-c", rest)
    elif word == "COPY" and rest.startswith(". "):
        image.copy(rest[2:])
    elif word == "ENV":
        name, _, value = rest.partition("=")
        image.environment[name] = value
    elif word == "USER":
        image.user = rest
    elif word == "WORKDIR":
        image.folder = rest
        (image.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
    elif word == "ENTRYPOINT":
        image.entrypoint = json.loads(rest)
    elif word != "CMD":
        raise ContainerError(f"{word} {rest}: this instruction is not known here")


def _release(base: str, root: Path) -> Path:
    """Return a folder with a minimal release of Debian, from `debian:RELEASE-slim`."""
    release = base.removeprefix("debian:").removesuffix("-slim")
    kept = Path.home() / ".cache" / "uetproto" / "containers" / release
    if not (kept / "etc" / "apt" / "sources.list").exists():
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        script = SCRIPTS / (release if (SCRIPTS / release).exists() else "sid")
        _run("debootstrap", "--variant=minbase", release, str(kept), MIRROR, str(script))
    _run("cp", "-a", str(kept), str(root))
    for name, place in NETWORK.items():
        if Path(name).exists():
            shutil.copy(name, root / place.lstrip("/"))
    return root


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        told = f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
        raise ContainerError(f"{shlex.join(command)[:500]}: exit status {done.returncode}\n{told}")
    return done.stdout
