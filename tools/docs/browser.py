"""A headless browser for the tests and pictures of the documentation. Speaks the DevTools protocol over two pipes, so
that no package is needed; serves folders on the loopback interface."""
import base64
import contextlib
import fcntl
import functools
import http.server
import json
import os
import select
import shutil
import subprocess
import threading
import time

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


class Failure(Exception):
    pass


def program():
    """The path of the browser, or None."""
    return next((p for name in NAMES if (p := shutil.which(name))), None)


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


@contextlib.contextmanager
def serve(folder):
    """Serves a folder; gives its address, without a slash at the end."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


class Browser:
    """One tab of a headless browser.

    `problems` has what went wrong since the last open(): messages of level error, exceptions of scripts, requests that
    failed."""

    def __init__(self, folder, limit=60):
        """`folder` holds the profile; `limit` is the longest wait for an answer, in seconds."""
        self.limit, self.last, self.buffer, self.events, self.problems = limit, 0, b"", [], []
        ends = [os.pipe(), os.pipe()]
        inner = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (ends[0][0], ends[1][1])]
        words = [program(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1", "--remote-debugging-pipe", f"--user-data-dir={os.path.join(folder, 'profile')}", "about:blank"]
        # The browser reads from descriptor 3 and writes to descriptor 4.
        self.process = subprocess.Popen(["bash", "-c", f'exec "$@" 3<&{inner[0]} 4>&{inner[1]}', "browser", *words], pass_fds=inner, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for end in (ends[0][0], ends[1][1], *inner):
            os.close(end)
        self.to, self.of, self.session = ends[0][1], ends[1][0], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        self.session = None
        with contextlib.suppress(Failure, OSError):
            self.call("Browser.close")
        os.close(self.to)
        os.close(self.of)
        try:
            self.process.wait(self.limit)  # it still writes its profile
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def read(self, deadline):
        """The next message of the browser."""
        while b"\0" not in self.buffer:
            if not select.select([self.of], [], [], max(0, deadline - time.monotonic()))[0]:
                raise Failure(f"the browser does not answer within {self.limit} s")
            data = os.read(self.of, 1 << 20)
            if not data:
                raise Failure("the browser has ended")
            self.buffer += data
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def take(self, message):
        """Keeps an event, and what it says about the page."""
        name, what = message.get("method"), message.get("params", {})
        self.events.append(name)
        if name == "Runtime.exceptionThrown":
            self.problems.append(what["exceptionDetails"].get("exception", {}).get("description") or what["exceptionDetails"]["text"])
        elif name == "Runtime.consoleAPICalled" and what["type"] in ("error", "assert"):
            self.problems.append(" ".join(str(a.get("value", a.get("description"))) for a in what["args"]))
        elif name == "Log.entryAdded" and what["entry"]["level"] == "error":
            self.problems.append(f"{what['entry']['text']} {what['entry'].get('url', '')}".strip())
        elif name == "Network.loadingFailed" and not what.get("canceled"):
            self.problems.append(f"request failed: {what['errorText']}")

    def call(self, method, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params} | ({"sessionId": self.session} if self.session else {})
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self.limit
        while True:
            answer = self.read(deadline)
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise Failure(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.take(answer)

    def wait_event(self, name):
        deadline = time.monotonic() + self.limit
        while name not in self.events:
            self.take(self.read(deadline))

    def look(self, width, height=900, dark=False):
        """Sets the size of the window and the preferred color scheme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, address):
        self.problems, self.events = [], []
        said = self.call("Page.navigate", url=address)
        if "errorText" in said:
            raise Failure(f"{address}: {said['errorText']}")
        self.wait_event("Page.loadEventFired")

    def run(self, script):
        """The value of an expression of JavaScript; a promise is waited for."""
        said = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in said:
            raise Failure(f"{script[:80]}: {said['exceptionDetails'].get('exception', {}).get('description')}")
        return said["result"].get("value")

    def until(self, script):
        """Waits until an expression is true; returns its value."""
        deadline = time.monotonic() + self.limit
        while time.monotonic() < deadline:
            with contextlib.suppress(Failure):  # the page may be left during the call
                if value := self.run(script):
                    return value
            time.sleep(0.05)
        raise Failure(f"not true within {self.limit} s: {script}")

    def screenshot(self, path, box=None):
        """Writes a PNG of the window, or of a box (x, y, width, height) of the page."""
        clip = {"clip": dict(zip(("x", "y", "width", "height"), box), scale=1), "captureBeyondViewport": True} if box else {}
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png", **clip)["data"]))
