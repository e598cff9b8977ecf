# SPDX-License-Identifier: GPL-2.0-only
"""This module drives headless Chromium through its debugging protocol, over two pipes: one process for all pages."""

import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PROGRAMS = ("chromium-headless-shell", "chromium")
PATIENCE = 60
"""How many seconds the browser may be silent while something is awaited."""


class Browser:
    """A browser with one tab. What goes wrong in a page is kept in `faults` until it is taken."""

    def __init__(self, reads: Any, writes: Any) -> None:
        self._reads, self._writes = reads, writes
        self._calls = 0
        self._buffer = b""
        self._session: str | None = None
        self._loaded = False
        self._faults: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **values: Any) -> dict[str, Any]:
        """Call a method of the protocol. Returns its result; raises `RuntimeError` if the browser refuses it."""
        self._calls += 1
        message = {"id": self._calls, "method": method, "params": values}
        if self._session:
            message["sessionId"] = self._session
        self._writes.write(json.dumps(message).encode() + b"\0")
        self._writes.flush()
        while True:
            answer = self._next()
            if answer.get("id") == self._calls:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                found: dict[str, Any] = answer["result"]
                return found

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._reads], [], [], PATIENCE)[0]:
                raise RuntimeError(f"the browser said nothing for {PATIENCE} seconds")
            piece = os.read(self._reads.fileno(), 1 << 16)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._hear(message.get("method", ""), message.get("params", {}))
        return message

    def _hear(self, event: str, values: dict[str, Any]) -> None:
        match event:
            case "Page.loadEventFired" | "Page.navigatedWithinDocument":
                self._loaded = True
            case "Runtime.consoleAPICalled" if values["type"] in ("error", "warning", "assert"):
                said = " ".join(str(one.get("value", one.get("description", ""))) for one in values["args"])
                self._faults.append(f"console: {said}")
            case "Runtime.exceptionThrown":
                details = values["exceptionDetails"]
                self._faults.append(f"exception: {details.get('exception', {}).get('description', details['text'])}")
            case "Log.entryAdded" if values["entry"]["level"] in ("error", "warning"):
                self._faults.append(f"{values['entry']['text']} {values['entry'].get('url', '')}")
            case "Network.requestWillBeSent":
                url = values["request"]["url"]
                if not url.startswith(("file:", "data:", "blob:", "http://127.0.0.1:")):
                    self._faults.append(f"asks for {url}")

    def faults(self) -> list[str]:
        """Return what went wrong since the last call."""
        found, self._faults = self._faults, []
        return found

    def size(self, width: int, height: int = 900) -> None:
        """Give the page a width and a height, in pixels of CSS."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)

    def scheme(self, name: str) -> None:
        """Prefer `light` or `dark` colours."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def open(self, url: str) -> None:
        """Open a page and wait until it is loaded."""
        self._loaded = False
        self.call("Page.navigate", url=url)
        self.wait()

    def wait(self) -> None:
        """Wait until the page that is on its way is loaded."""
        while not self._loaded:
            self._next()

    def run(self, script: str) -> Any:
        """Return what an expression of JavaScript is in the page; a promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", "a script failed"))
        return answer["result"].get("value")

    def click(self, x: float, y: float) -> None:
        """Press and release the mouse at a place of the window, and wait for the page that this opens."""
        self._loaded = False
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.wait()

    def type(self, text: str) -> None:
        """Type a text and Enter, and wait for the page that this opens."""
        self._loaded = False
        self.call("Input.insertText", text=text)
        self.call(
            "Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r"
        )
        self.wait()

    def picture(self, box: dict[str, float] | None = None) -> str:
        """Return the picture of what the window shows, or of a box of the page: PNG, in base64."""
        clip = {} if box is None else {"clip": box}
        found: str = self.call("Page.captureScreenshot", format="png", **clip)["data"]
        return found


@contextmanager
def browser() -> Iterator[Browser]:
    """Yield a browser. Raises `FileNotFoundError` if there is no Chromium."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise FileNotFoundError("no Chromium; please run:  sudo apt-get install -y chromium-headless-shell")
    (its_end, to_it), (from_it, other_end) = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            program, "--remote-debugging-pipe", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--no-first-run", "--disable-background-networking", f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        # The browser reads commands from descriptor 3 and answers at descriptor 4.
        start = ["bash", "-c", f'exec "$0" "$@" 3<&{its_end} 4>&{other_end}', *command]
        process = subprocess.Popen(start, pass_fds=[its_end, other_end], stderr=subprocess.DEVNULL)
        os.close(its_end)
        os.close(other_end)
        try:
            with os.fdopen(from_it, "rb") as reads, os.fdopen(to_it, "wb") as writes:
                yield Browser(reads, writes)
        finally:
            process.terminate()
            process.wait()
