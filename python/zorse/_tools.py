"""Finds and calls the tools."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

_HERE = os.path.dirname(os.path.abspath(__file__))
_POLL_SECONDS = 0.02


class ZorseError(RuntimeError):
    """The error message of a tool: the location, the expected and the found value, and what to do.

    `code` is the tool's exit code: 1 an error in the input, 2 an internal error or a lost connection, 3 a run with numbers that were not finite.
    """

    def __init__(self, message: str, code: int = 1):
        super().__init__(message)
        self.code = code


class ZorseWarning(UserWarning):
    """A warning of a tool."""


def _folders() -> list[str]:
    """Folders to search for the tools, in this order: ZORSE_BIN, the installed package, the source
    tree of this file, PATH."""
    source = os.path.join(os.path.dirname(os.path.dirname(_HERE)), "build", "release", "bin")
    given = os.environ.get("ZORSE_BIN")
    return ([given] if given else []) + [os.path.join(_HERE, "bin"), source] + os.environ.get("PATH", "").split(os.pathsep)


def tool(name: str) -> str:
    """Returns the path of a tool, such as "zorse-compile". Raises ZorseError if it does not exist."""
    for folder in _folders():
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise ZorseError(f"{name} was not found next to this package, in a build of its source tree, or on the PATH; build it (tools/build.sh), or set the "
                     "environment variable ZORSE_BIN to the folder of the tools")


def environment() -> dict[str, str]:
    """The environment of a tool: this one, with the package's bin folder first on the PATH, which
    contains the linker of kernels."""
    inside = os.path.join(_HERE, "bin")
    paths = os.environ.get("PATH", "")
    return dict(os.environ, PATH=inside + os.pathsep + paths if os.path.isdir(inside) else paths)


def warn(message: str) -> None:
    """Issues a ZorseWarning at the calling line outside this package."""
    depth, frame = 1, sys._getframe(0)
    while frame.f_back is not None and os.path.dirname(os.path.abspath(frame.f_code.co_filename)) == _HERE:
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, ZorseWarning, stacklevel=depth)


class Process:
    """A running tool. Its errors and warnings go to a file, so that it never blocks until they are
    read."""

    def __init__(self, name: str, words: Sequence[str], quiet: bool):
        self._name, self._quiet, self._read, self._errors = name, quiet, 0, list[str]()
        self._error: BaseException | None = None
        self._interrupts, self._before = 0, None  # the interrupt handler before ours
        self._said = tempfile.TemporaryFile("w+b")
        self._process = subprocess.Popen([tool(name), *words], env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL if quiet else None,
                                         stderr=self._said)

    def stop(self) -> None:
        """Requests an orderly end: training stops after the steps that have begun, and all
        requested outputs are written."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def running(self) -> bool:
        """Whether the tool has not ended. Also issues its warnings so far."""
        ended = self._process.poll() is not None
        self._listen()
        return not ended

    def _listen(self, rest: bool = False) -> None:
        """Issues warnings as Python warnings and prints notes to stderr unless `quiet`; everything
        else is kept for the exception."""
        text = os.pread(self._said.fileno(), 1 << 20, self._read)
        text = text if rest else text[:text.rfind(b"\n") + 1]
        self._read += len(text)
        for line in text.decode("utf-8", "replace").splitlines():
            if ": warning: " in line[:64] or line.startswith("warning: "):
                warn(line[line.index("warning: ") + len("warning: "):])
            elif line.startswith(("note: ", "  note: ")):
                if not self._quiet:
                    print(line, file=sys.stderr)
            elif line:
                self._errors.append(line.removeprefix("error: "))

    def _attempt(self, action: Callable[[], Any]) -> None:
        """Runs `action`. The first exception ends the tool in an orderly way and is raised when the
        tool has ended."""
        try:
            action()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if self._error is None:
                self._error = error
                self.stop()

    def _interrupted(self, number: int = signal.SIGINT, frame: Any = None) -> None:
        """Handles Ctrl-C while the tool runs: the first one requests an orderly end, every further one kills the tool and interrupts this process immediately. Also
        calls an earlier handler (of an event loop)."""
        first, self._interrupts = self._interrupts == 0, self._interrupts + 1
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT if first else signal.SIGTERM if self._interrupts == 2 else signal.SIGKILL)
        if not first:
            raise KeyboardInterrupt
        if callable(self._before) and self._before is not signal.default_int_handler:
            self._before(number, frame)

    def wait(self, callback: Callable[[], Any] = lambda: None) -> tuple[int, BaseException | None]:
        """Waits for the end; calls `callback` about every 20 ms and once after the end. Returns the exit code, and the exception that ended the tool: an
        interrupt of this process, which is passed on, or the exception raised by `callback`."""
        ours = threading.current_thread() is threading.main_thread() and callable(signal.getsignal(signal.SIGINT))
        if ours:
            self._before = signal.getsignal(signal.SIGINT)
            signal.signal(signal.SIGINT, self._interrupted)
        try:
            while True:
                try:
                    ended = self._process.poll() is not None
                    self._attempt(self._listen)
                    self._attempt(callback)
                    if ended:
                        break
                    self._process.wait(_POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    pass
                except KeyboardInterrupt as error:
                    self._error = error
                    if not self._interrupts:  # handled by another handler than ours
                        self._attempt(self._interrupted)
            self._attempt(lambda: self._listen(rest=True))
        finally:
            if ours:
                signal.signal(signal.SIGINT, self._before)
            if self._process.poll() is None:  # no exception may leave a tool running
                self._process.kill()
                self._process.wait()
            self._said.close()
        if self._interrupts and self._error is None:
            self._error = KeyboardInterrupt()
        return self._process.returncode, self._error

    def failure(self) -> ZorseError:
        """The error of a tool with a nonzero exit code."""
        code = self._process.returncode
        return ZorseError("\n".join(self._errors) or f"{self._name} ended with exit code {code} without a message", code)


def call(name: str, words: Sequence[str], quiet: bool = True) -> None:
    """Runs a tool to its end. Raises ZorseError for a nonzero exit code."""
    process = Process(name, words, quiet)
    code, error = process.wait()
    if error is not None:
        raise error
    if code != 0:
        raise process.failure()


def main() -> NoReturn:
    """Entry point of the tools of an installed package on the PATH: runs the tool with the name of this program."""
    name = os.path.basename(sys.argv[0])
    inside = os.path.join(_HERE, "bin", name)
    try:
        path = inside if os.path.isfile(inside) else tool(name)
    except ZorseError as error:
        raise SystemExit(str(error)) from None
    os.execve(path, [path, *sys.argv[1:]], environment())


def torch_export() -> None:
    """zorse-torch-export: the exporter of PyTorch models (python -m zorse.torch_export)."""
    try:
        from .torch_export import main as export
    except ImportError as error:
        raise SystemExit(f"error: zorse-torch-export needs PyTorch and its exporter ({error}): pip install 'zorse[hub]'") from None
    export()
