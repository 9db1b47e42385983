"""A headless Chromium, driven over the DevTools protocol.

The protocol runs over two pipes (--remote-debugging-pipe): JSON messages that
end in a zero byte. Everything a page may complain about is collected: failed
assertions of its policy, uncaught errors, errors and warnings of its console,
dialogs, and requests to another origin.
"""

import base64
import fcntl
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

PATIENCE_S = 30
POLL_S = 0.02
# Above what a child may have open already.
FIRST_FD = 40

KEYS = {
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
    "ArrowLeft": ("ArrowLeft", 37, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    "Tab": ("Tab", 9, ""),
}


def find():
    """The path of a Chromium, or None."""
    return (os.environ.get("FORETOKEN_CHROMIUM") or shutil.which("chromium") or
            shutil.which("chromium-browser") or shutil.which("google-chrome"))


class Failure(Exception):
    """What a page did not do."""


class Browser:
    """One browser with one page. Used by one thread."""

    def __init__(self, binary):
        self._folder = tempfile.TemporaryDirectory(prefix="page-")
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD, FIRST_FD)
                  for fd in (theirs_in, theirs_out)]

        def give_pipes():
            os.dup2(theirs[0], 3)
            os.dup2(theirs[1], 4)

        # pylint: disable=subprocess-popen-preexec-fn
        self._process = subprocess.Popen(
            [binary, "--headless=new", "--no-sandbox", "--disable-gpu",
             "--remote-debugging-pipe", "--no-first-run", "--disable-sync",
             "--disable-background-networking", "--disable-component-update",
             "--disable-default-apps", "--disable-extensions",
             "--disable-dev-shm-usage", "--force-color-profile=srgb",
             "--lang=en-US", f"--user-data-dir={self._folder.name}",
             "about:blank"],
            preexec_fn=give_pipes, pass_fds=(3, 4),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        for fd in (theirs_in, theirs_out, *theirs):
            os.close(fd)
        self._in, self._out = ours_in, ours_out
        self._rest = b""
        self._next = 0
        self._session = None
        self._answers = {}
        self.complaints = []
        self.requests = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t for t in targets if t["type"] == "page")
        self._session = self.call("Target.attachToTarget",
                                  targetId=page["targetId"],
                                  flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        """Ends the browser and removes what it wrote."""
        self._session = None
        try:
            self._write("Browser.close", {})
            self._process.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)
        # Helpers of the browser may still be writing there.
        shutil.rmtree(self._folder.name, ignore_errors=True)
        self._folder.cleanup()

    def _write(self, method, params):
        self._next += 1
        message = {"id": self._next, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data):]
        return self._next

    def _read(self, timeout):
        """Takes what has arrived; waits for it at most `timeout` seconds."""
        if not select.select([self._in], [], [], timeout)[0]:
            return
        data = os.read(self._in, 1 << 16)
        if not data:
            raise Failure("the browser is gone")
        *messages, self._rest = (self._rest + data).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self._on_event(message["method"], message["params"])

    def _on_event(self, method, params):
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(
                details.get("exception", {}).get("description",
                                                 details["text"]))
        elif method == "Runtime.consoleAPICalled":
            if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(f"console: {params['args']}")
        elif method == "Log.entryAdded":
            entry = params["entry"]
            if entry["level"] in ("error", "warning"):
                self.complaints.append(f"{entry['source']}: {entry['text']}")
        elif method == "Page.javascriptDialogOpening":
            self.complaints.append(f"dialog: {params['message']}")
            self._write("Page.handleJavaScriptDialog", {"accept": True})
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def call(self, method, **params):
        """Calls a method of the protocol; returns its result."""
        number = self._write(method, params)
        end = time.monotonic() + PATIENCE_S
        while number not in self._answers:
            if time.monotonic() > end:
                raise Failure(f"{method}: no answer")
            self._read(1)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise Failure(f"{method}: {answer['error']}")
        return answer["result"]

    def evaluate(self, expression):
        """The JSON value of an expression; a promise is waited for."""
        result = self.call("Runtime.evaluate", expression=expression,
                           returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise Failure(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, expression):
        """Waits until an expression holds; returns its value."""
        end = time.monotonic() + PATIENCE_S
        while True:
            value = self.evaluate(expression)
            if value not in (None, False, 0, ""):  # an element is {}
                return value
            if time.monotonic() > end:
                raise Failure(f"never: {expression}\n" +
                              "\n".join(self.complaints))
            self._read(POLL_S)

    def text(self, selector):
        """What an element shows; "" if there is none."""
        return self.evaluate(
            f"document.querySelector({json.dumps(selector)})?.textContent ?? ''")

    def count(self, selector):
        """The number of elements that match."""
        return self.evaluate(
            f"document.querySelectorAll({json.dumps(selector)}).length")

    def open(self, url):
        """Opens a page and waits until it has loaded."""
        self.call("Page.navigate", url=url)
        self.wait(f"location.href.startsWith({json.dumps(url)}) && "
                  "document.readyState === 'complete'")

    def reload(self):
        """Loads the page again."""
        self.evaluate("window.before = true")
        self.call("Page.reload")
        self.wait("!window.before && document.readyState === 'complete'")

    def open_afresh(self, url):
        """Opens a page as somebody does who has never seen it, on a screen."""
        self.resize(1360, 860)
        self.prefer("light")
        self.open(url)
        self.evaluate("localStorage.clear(), sessionStorage.clear()")
        self.reload()

    def type(self, text):
        """Types into what has the focus."""
        self.call("Input.insertText", text=text)

    def key(self, key, modifiers=0):
        """Presses a key."""
        name, code, text = KEYS.get(key, (key, ord(key[0].upper()), key))
        event = {"key": name, "windowsVirtualKeyCode": code,
                 "modifiers": modifiers}
        if text:
            event["text"] = text
        self.call("Input.dispatchKeyEvent", type="keyDown", **event)
        event.pop("text", None)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def click(self, selector):
        """Clicks the middle of what an element shows first."""
        point = self.wait(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " if (!e) return null; e.scrollIntoView({block: 'nearest'});"
            " const box = e.getClientRects()[0];"
            " return box && {x: box.x + box.width / 2,"
            " y: box.y + box.height / 2}; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left",
                      clickCount=1, **point)

    def resize(self, width, height, scale=1):
        """Gives the page another size, in CSS pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width,
                  height=height, deviceScaleFactor=scale, mobile=width < 500)

    def prefer(self, scheme):
        """The system's colours, light or dark, and no motion."""
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"}])

    def screenshot(self, path):
        """Writes what is shown as PNG."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))
