"""Reads the metrics of a run while zorse-run writes them: steps, evaluations and samples, in order."""
from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from ._tools import warn
from .options import Path


def perplexity(loss: float | None) -> float:
    """exp(loss); NaN without a loss, infinite if it is too large."""
    if loss is None:
        return math.nan
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def duration(seconds: float) -> str:
    """Formats a duration, such as "42 s", "3:05 min" or "2:03 h"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60}:{whole % 60:02} min" if whole < 3600 else f"{whole // 3600}:{whole // 60 % 60:02} h"


@dataclass(frozen=True, repr=False)
class Step:
    """A training step or an evaluation: one line of zorse-run's metrics (docs/reference/report-json.md)."""
    step: int  #: number, from 1
    loss: float | None  #: before the update; None if it is not finite
    evaluation: bool  #: whether this is the loss on evaluation data
    figures: Mapping[str, Any]  #: the whole line
    steps: int = 0  #: number of the last step
    seconds_left: float | None = None  #: until the last step, at the speed of the last twenty steps

    @property
    def learning_rate(self) -> float | None:
        return self.figures.get("lr")

    @property
    def gradient_norm(self) -> float | None:
        """Gradient norm before clipping; None if it is not finite."""
        return self.figures.get("grad_norm")

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens per second; samples per second if the model has no sequence dimension."""
        return self.figures.get("tokens_per_second")

    @property
    def seconds(self) -> float | None:
        return self.figures.get("seconds")

    @property
    def memory_bytes(self) -> int | None:
        """Memory of the process (rank 0)."""
        return self.figures.get("memory_bytes")

    @property
    def perplexity(self) -> float:
        """exp(loss), for language models with a mean cross-entropy loss."""
        return perplexity(self.loss)

    def __repr__(self) -> str:
        loss = "not finite" if self.loss is None else f"{self.loss:.4f}"
        parts = [f"{'evaluation loss' if self.evaluation else 'loss'} {loss}"]
        for text, value in (("lr {:.3g}", self.learning_rate), ("gradient norm {:.3g}", self.gradient_norm), ("{:.0f} tokens/s", self.tokens_per_second),
                            ("{:.0f} MiB", self.memory_bytes and self.memory_bytes / (1 << 20))):
            if value is not None and not self.evaluation:
                parts.append(text.format(value))
        if self.seconds_left is not None:
            parts.append(f"{duration(self.seconds_left)} left")
        return f"Step({self.step}{f' of {self.steps}' if self.steps else ''}: {', '.join(parts)})"


@dataclass(frozen=True)
class Sample:
    """Text that the model generated during training (`generate_interval`)."""
    step: int  #: the text was generated after this step
    prompt: Sequence[int]  #: token ids
    ids: Sequence[int]  #: generated after the prompt
    text: str | None = field(default=None)  #: prompt and generated text, decoded by the tokenizer of train


@dataclass(frozen=True)
class Change:
    """Another plan of an elastic job (`elastic`): devices left, joined or became slow."""
    step: int  #: after this step
    devices: Sequence[str]  #: that take part from then on
    left: Sequence[str]
    joined: Sequence[str]
    slowdowns: Mapping[str, float]  #: devices that the plan takes for slower: factors on their computing times
    reason: str  #: the failure, or why another plan is faster; empty: devices became available, or are not any more
    pause_seconds: float


class Lines:
    """Complete lines of a file that another process writes. The process may replace the file by one
    with the same beginning (after a restart of the job)."""

    def __init__(self, path: str, resumed: bool):
        self._path, self._file, self._rest = path, None, b""
        self._known: list[bytes] = []
        if resumed and os.path.isfile(path):
            with open(path, "rb") as file:
                self._known = file.read().split(b"\n")[:-1]
        self._earlier = len(self._known)  # lines of an earlier run

    def _reopen(self) -> bool:
        """Whether the path refers to another file than the open one."""
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return False
        if self._file is not None:
            ours = os.fstat(self._file.fileno())
            if (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino) and there.st_size >= self._file.tell():
                return False
            self._file.close()
        self._file: BinaryIO | None = open(self._path, "rb")
        return True

    def more(self) -> tuple[int, list[bytes]]:
        """Returns how many of the lines returned so far are still valid, and the lines after them."""
        again = self._reopen()
        if self._file is None:
            return max(len(self._known) - self._earlier, 0), []
        *lines, self._rest = ((b"" if again else self._rest) + self._file.read()).split(b"\n")
        kept = len(self._known)
        if again:
            kept = next((i for i, (a, b) in enumerate(zip(lines, self._known)) if a != b), min(len(lines), len(self._known)))
            lines = lines[kept:]
            self._earlier = min(self._earlier, kept)
        self._known = self._known[:kept] + lines
        return kept - self._earlier, lines

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class Metrics:
    """Messages of a run so far. `copy`: an additional file for the lines, unless zorse-run writes
    them there itself."""

    def __init__(self, folder: str, path: Path | None, resumed: bool, steps: int, tokenizer: Any = None):
        self.path = os.path.join(folder, "metrics.jsonl")
        self._copy = None
        if path is not None:
            self.path = os.fspath(path)
            if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):  # a terminal or a pipe, which cannot be read back
                self.path = os.path.join(folder, "metrics.jsonl")
                self._copy = open(path, "wb", buffering=0)
        self._lines = Lines(self.path, resumed)
        self._total, self._tokenizer = steps, tokenizer
        self._all: list[Step | Sample | Change] = []

    def of(self, kind: type, evaluation: bool = False) -> list[Any]:
        return [e for e in self._all if isinstance(e, kind) and (kind is not Step or e.evaluation == evaluation)]

    def more(self) -> list[Step | Sample | Change]:
        """Returns the messages since the last call."""
        kept, lines = self._lines.more()
        del self._all[kept:]
        for line in lines:
            self._all.append(self._entry(json.loads(line)))
            if self._copy:
                self._copy.write(line + b"\n")
        return self._all[kept:] if lines else []

    def close(self) -> None:
        self._lines.close()
        if self._copy:
            self._copy.close()

    def _entry(self, line: dict[str, Any]) -> Step | Sample | Change:
        if "devices" in line:
            return Change(**line)
        if "generated" in line:
            return Sample(line["step"], line["prompt"], line["generated"], self._text([*line["prompt"], *line["generated"]]))
        evaluation = "eval_loss" in line
        return Step(line["step"], line.get("eval_loss" if evaluation else "loss"), evaluation, line, self._total, None if evaluation else self._left(line))

    def _text(self, ids: list[int]) -> str | None:
        try:
            return self._tokenizer.decode(ids) if self._tokenizer is not None else None
        except Exception as error:  # a failure of text samples must not end the run
            warn(f"the tokenizer cannot decode a sample: {type(error).__name__}: {error}")
            return None

    def _left(self, line: dict[str, Any]) -> float | None:
        recent = [e.seconds for e in self._all[-20:] if isinstance(e, Step) and not e.evaluation and e.seconds is not None]
        recent += [line["seconds"]] if line.get("seconds") is not None else []
        return (self._total - line["step"]) * sum(recent) / len(recent) if recent else None
