# SPDX-License-Identifier: GPL-2.0-only
"""Build the site of docs/, serve it, check it. `tools/docs` installs what is needed and starts this program."""

import argparse
import contextlib
import functools
import http.server
import shutil
import subprocess
import sys
import time
from pathlib import Path

import stage
from checks import CHECKS

BUILD = stage.ROOT / "build" / "docs"
HTML = BUILD / "html"
OWN = ("genindex.html", "search.html")
"""Pages that Sphinx makes without a source."""


def build(anew: bool) -> bool:
    """Build the site. Returns whether there was neither an error nor a warning."""
    if anew:
        shutil.rmtree(BUILD, ignore_errors=True)
    try:
        stage.stage(BUILD / "source")
    except stage.BrokenLinkError as error:
        print(error, file=sys.stderr)
        return False
    command = [
        sys.executable, "-m", "sphinx", "--quiet", "--keep-going", "--nitpicky", "--fail-on-warning", "--jobs", "auto",
        "--conf-dir", str(stage.ROOT / "tools" / "site"), "--doctree-dir", str(BUILD / "trees"),
        str(BUILD / "source"), str(HTML),
    ]  # fmt: skip
    good = subprocess.run(command, check=False).returncode == 0
    drop_stale()
    return good


def drop_stale() -> None:
    """Remove pages of an earlier build whose sources are gone."""
    for page in HTML.rglob("*.html"):
        source = BUILD / "source" / page.relative_to(HTML).with_suffix(".md")
        if not source.exists() and page.name not in OWN:
            page.unlink()


def check(names: list[str]) -> bool:
    """Run checks, one after the other, and print what each found. Returns whether all of them passed."""
    failed = []
    for name in names:
        start = time.monotonic()
        report = CHECKS[name](HTML)
        state = "FAILED" if report.faults else "passed"
        print(f"{name:10} {state}  {time.monotonic() - start:5.1f} s  {report.told}", flush=True)
        for fault in report.faults[:40]:
            print(f"  {fault}")
        if len(report.faults) > 40:
            print(f"  … and {len(report.faults) - 40} more")
        if report.faults:
            failed.append(name)
    return not failed


def serve(port: int) -> None:
    """Serve the site on this host until Ctrl-C."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(HTML))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/ until Ctrl-C", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


def main() -> int:
    """Read the command line. Returns the exit status: 1 if the build or a check failed."""
    parser = argparse.ArgumentParser(prog="tools/docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="build anew, and run all checks")
    parser.add_argument("--without-tests", action="store_true", help="not the tests of the pages: tools/test runs them")
    parser.add_argument("--only", default="", metavar="NAME,…", help=f"some checks: {', '.join(CHECKS)}")
    parser.add_argument("--serve", action="store_true", help="serve the site on this host")
    parser.add_argument("--port", type=int, default=8000, help="the TCP port of --serve (8000; 0: any that is free)")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(CHECKS)
    if unknown := [name for name in names if name not in CHECKS]:
        parser.error(f"--only {unknown[0]}: no such check; legal: {', '.join(CHECKS)}")
    if options.without_tests:
        names = [name for name in names if name != "tests"]
    good = build(anew=options.check)
    print(f"{Path(HTML).relative_to(stage.ROOT)}/index.html" if good else "the site was not built without warnings")
    if options.check:
        good = check(names) and good
    if options.serve and good:
        serve(options.port)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
