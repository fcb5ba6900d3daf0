"""Training progress on terminals and in notebooks: one line that is overwritten."""
from __future__ import annotations

import os
import sys
import time

from ._metrics import Step


def shows() -> bool:
    """Whether progress is visible: stderr is a terminal, or this is a notebook."""
    shell = sys.modules.get("IPython")
    shell = shell.get_ipython() if shell is not None and hasattr(shell, "get_ipython") else None
    try:
        return (shell is not None and hasattr(shell, "kernel")) or sys.stderr.isatty()
    except (AttributeError, ValueError):  # no stderr, or a closed one
        return False


class Progress:
    def __init__(self, shown: bool):
        self._shown, self._last, self._width, self._evaluation = shown, 0.0, 0, ""

    def step(self, step: Step) -> None:
        if not self._shown:
            return
        if step.evaluation:
            self._evaluation = "" if step.loss is None else f", evaluation {step.loss:.4f}"
        now = time.monotonic()
        if step.evaluation or (now - self._last < 0.2 and step.step < step.steps):
            return
        self._last = now
        self._write(repr(step)[len("Step("):-1] + self._evaluation)

    def _write(self, text: str) -> None:
        try:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns
        except (AttributeError, OSError, ValueError):
            columns = 120
        text = text[:columns - 1]
        print("\r" + text.ljust(self._width), end="", file=sys.stderr, flush=True)
        self._width = len(text)

    def end(self) -> None:
        if self._width:
            print(file=sys.stderr, flush=True)
