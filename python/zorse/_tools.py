"""Where the tools are, and how they are called."""
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
    """What a tool refused, in its words: the place, what was expected, what was found, what to do.

    `code` is the tool's exit code: 1 an error in the input, 2 an internal error or a lost connection, 3 a run whose numbers were not finite.
    """

    def __init__(self, message: str, code: int = 1):
        super().__init__(message)
        self.code = code


class ZorseWarning(UserWarning):
    """What a tool warned of, in its words."""


def _folders() -> list[str]:
    """Folders that may hold the tools, the first first: ZORSE_BIN, the installed package, the source tree this file is in, PATH."""
    source = os.path.join(os.path.dirname(os.path.dirname(_HERE)), "build", "release", "bin")
    given = os.environ.get("ZORSE_BIN")
    return ([given] if given else []) + [os.path.join(_HERE, "bin"), source] + os.environ.get("PATH", "").split(os.pathsep)


def tool(name: str) -> str:
    """The path of a tool, such as "zorse-compile". Raises ZorseError where there is none."""
    for folder in _folders():
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise ZorseError(f"{name} was not found beside this package, in a build of its source tree, or on the PATH; build it (tools/build.sh), or name the "
                     "folder of the tools in the environment variable ZORSE_BIN")


def environment() -> dict[str, str]:
    """The environment of a tool: this one, with the package's own folder of programs in front, where the linker of kernels is."""
    inside = os.path.join(_HERE, "bin")
    paths = os.environ.get("PATH", "")
    return dict(os.environ, PATH=inside + os.pathsep + paths if os.path.isdir(inside) else paths)


def warn(message: str) -> None:
    """A ZorseWarning at the line outside this package that called it."""
    depth, frame = 1, sys._getframe(0)
    while frame.f_back is not None and os.path.dirname(os.path.abspath(frame.f_code.co_filename)) == _HERE:
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, ZorseWarning, stacklevel=depth)


class Process:
    """A tool that runs. Its errors and warnings go to a file, so that it never waits until somebody reads them."""

    def __init__(self, name: str, words: Sequence[str], quiet: bool):
        self._name, self._quiet, self._read, self._errors = name, quiet, 0, list[str]()
        self._error: BaseException | None = None
        self._interrupts, self._before = 0, None  # the handler of interrupts before ours
        self._said = tempfile.TemporaryFile("w+b")
        self._process = subprocess.Popen([tool(name), *words], env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL if quiet else None,
                                         stderr=self._said)

    def stop(self) -> None:
        """Asks for an orderly end: of training, after the steps that have begun, with everything written that was asked for."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def _listen(self, rest: bool = False) -> None:
        """Warnings as Python's, notes to this process's own errors unless `quiet`; everything else is kept for the exception."""
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
        """Runs `action`. The first exception ends the tool in an orderly way and is raised at its end."""
        try:
            action()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if self._error is None:
                self._error = error
                self.stop()

    def _interrupted(self, number: int = signal.SIGINT, frame: Any = None) -> None:
        """What Ctrl-C does while the tool runs: the first asks it to end, every further one ends it and interrupts this process where it is. A handler that was
        there before ours (an event loop's) is called, too."""
        first, self._interrupts = self._interrupts == 0, self._interrupts + 1
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT if first else signal.SIGTERM if self._interrupts == 2 else signal.SIGKILL)
        if not first:
            raise KeyboardInterrupt
        if callable(self._before) and self._before is not signal.default_int_handler:
            self._before(number, frame)

    def wait(self, meanwhile: Callable[[], Any] = lambda: None) -> tuple[int, BaseException | None]:
        """Waits for the end and calls `meanwhile` about every 20 ms and once after the end. Returns the exit code, and the exception that ended the tool: an
        interrupt of this process, which is passed on, or what `meanwhile` raised."""
        ours = threading.current_thread() is threading.main_thread() and callable(signal.getsignal(signal.SIGINT))
        if ours:
            self._before = signal.getsignal(signal.SIGINT)
            signal.signal(signal.SIGINT, self._interrupted)
        try:
            while True:
                try:
                    ended = self._process.poll() is not None
                    self._attempt(self._listen)
                    self._attempt(meanwhile)
                    if ended:
                        break
                    self._process.wait(_POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    pass
                except KeyboardInterrupt as error:
                    self._error = error
                    if not self._interrupts:  # by another handler than ours
                        self._attempt(self._interrupted)
            self._attempt(lambda: self._listen(rest=True))
        finally:
            if ours:
                signal.signal(signal.SIGINT, self._before)
            if self._process.poll() is None:  # no exception leaves a tool behind
                self._process.kill()
                self._process.wait()
            self._said.close()
        if self._interrupts and self._error is None:
            self._error = KeyboardInterrupt()
        return self._process.returncode, self._error

    def failure(self) -> ZorseError:
        """The error of a tool that ended with an exit code that is not 0."""
        code = self._process.returncode
        return ZorseError("\n".join(self._errors) or f"{self._name} ended with exit code {code} and said nothing", code)


def call(name: str, words: Sequence[str], quiet: bool = True) -> None:
    """Runs a tool to its end. Raises ZorseError for any exit code but 0."""
    process = Process(name, words, quiet)
    code, error = process.wait()
    if error is not None:
        raise error
    if code != 0:
        raise process.failure()


def main() -> NoReturn:
    """The tools of an installed package, by their names on the PATH: each is this, called as it."""
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
