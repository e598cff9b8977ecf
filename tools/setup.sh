# SPDX-License-Identifier: GPL-2.0-only
# Sourced by the other tools: a virtual environment in the clone, and Debian packages where they are missing.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv
python=${PYTHON:-python3}

# Tests start hundreds of processes; without compiled modules on the disk each of them would compile the project anew.
unset PYTHONDONTWRITEBYTECODE

say() { printf '%s\n' "$*" >&2; }

die() {
    say "$*"
    exit 1
}

# need COMMAND-THAT-SUCCEEDS-WHEN-PRESENT PACKAGE…: installs the packages by apt where that is possible.
# Returns 1, having printed the one command to run, where it is not.
need() {
    local check=$1
    shift
    eval "$check" >/dev/null 2>&1 && return 0
    local sudo=
    if [ "$(id -u)" != 0 ]; then sudo=sudo; fi
    if command -v apt-get >/dev/null && { [ -z "$sudo" ] || sudo -n true 2>/dev/null; }; then
        say "installing $* …"
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq update >&2 || true
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@" >/dev/null || true
        hash -r
        eval "$check" >/dev/null 2>&1 && return 0
    fi
    say "missing: $*. Please run:  sudo apt-get install -y $*"
    return 1
}

# environment [EXTRA]: the virtual environment with this project in it, made or brought up to date.
environment() {
    command -v "$python" >/dev/null || die "python3 is missing. Please run:  sudo apt-get install -y python3 python3-venv"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "Python 3.11 or later is needed; set PYTHON=…"
    need "$python -c 'import venv, ensurepip'" python3-venv || exit 1
    local wanted=$1 stamp=$venv/.installed-${1:-run}
    [ -n "$wanted" ] || [ ! -e "$venv/.installed-test" ] || stamp=$venv/.installed-test  # which has all the rest
    if [ ! -e "$stamp" ] || [ "$root/pyproject.toml" -nt "$stamp" ]; then
        [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
        say "installing Python packages into .venv …"
        # Of the three thousand modules a third is used; Python compiles these when they are first imported.
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile -e "$root${wanted:+[$wanted]}" >&2 ||
            die "pip could not install what pyproject.toml asks for; its messages are above."
        touch "$stamp"
    fi
    export PATH=$venv/bin:$PATH
}
