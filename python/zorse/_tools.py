"""Where the tools are, and how they are called."""
from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from typing import NoReturn

_HERE = os.path.dirname(os.path.abspath(__file__))


class ZorseError(RuntimeError):
    """What a tool refused, in its words: the place, what was expected, what was found, what to do.

    `code` is the tool's exit code: 1 an error in the input, 2 an internal error or a lost connection, 3 a run whose numbers were not finite.
    """

    def __init__(self, message: str, code: int = 1):
        super().__init__(message)
        self.code = code


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


def start(name: str, words: Sequence[str], quiet: bool) -> subprocess.Popen:
    """Starts a tool. What it prints of its progress goes to this process's output unless `quiet`; its errors are kept for `finish`."""
    return subprocess.Popen([tool(name), *words], env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL if quiet else None,
                            stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen, name: str, fine: tuple[int, ...] = (0,)) -> int:
    """Waits for the end of a tool; an interrupt of this process is passed on, and waited for. Raises ZorseError for exit codes that are not `fine`."""
    try:
        errors = process.communicate()[1]
    except KeyboardInterrupt:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate()
        raise
    if process.returncode not in fine:
        said = "\n".join(line.removeprefix("error: ") for line in errors.strip().splitlines())
        raise ZorseError(said or f"{name} ended with exit code {process.returncode} and said nothing", process.returncode)
    return process.returncode


def call(name: str, words: Sequence[str], quiet: bool = True) -> None:
    finish(start(name, words, quiet), name)


def main() -> NoReturn:
    """The tools of an installed package, by their names on the PATH: each is this, called as it."""
    import sys
    name = os.path.basename(sys.argv[0])
    inside = os.path.join(_HERE, "bin", name)
    try:
        path = inside if os.path.isfile(inside) else tool(name)
    except ZorseError as error:
        raise SystemExit(str(error)) from None
    os.execve(path, [path, *sys.argv[1:]], environment())
