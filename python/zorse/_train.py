"""zorse.train: from a module, an ONNX file or a bundle to trained weights."""
from __future__ import annotations

import json
import os
import signal
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _tools
from ._compile import Bundle, compile
from ._files import data_words
from ._weights import Weights, load_into
from .options import CompileOptions, Path, RunOptions, check, of, words


@dataclass(frozen=True)
class Step:
    """A step of training, or an evaluation, as a line of zorse-run's metrics (docs/running.md)."""
    step: int  #: number, from 1
    loss: float | None  #: before the update; None where it is not finite
    evaluation: bool  #: whether this is the loss on held-back data
    figures: Mapping[str, Any] = field(repr=False)  #: the whole line: grad_norm, lr, tokens_per_second, seconds, memory_bytes, ...


@dataclass(frozen=True)
class Sample:
    """Text that the model made on the way (`sample_every`)."""
    step: int  #: after which
    prompt: Sequence[int]  #: token ids
    ids: Sequence[int]  #: that were drawn behind it
    text: str | None = None  #: both, by the tokenizer that train was given


@dataclass
class Run:
    """What a run of training left."""
    bundle: Bundle
    weights: Weights  #: the trained parameters by their names in the ONNX file
    steps: list[Step]
    evaluations: list[Step]
    samples: list[Sample]
    stopped: bool  #: by the callback, before its last step
    _folder: Any = field(default=None, repr=False)  # the temporary folder lives as long as what lies in it

    @property
    def losses(self) -> list[float | None]:
        return [s.loss for s in self.steps]

    def save(self, path: Path) -> None:
        """Writes the trained parameters as a safetensors file."""
        shutil.copyfile(self.weights.path, path)


class _Metrics(threading.Thread):
    """Reads the lines of metrics as zorse-run writes them, and calls back for each."""

    def __init__(self, path: str, copy: Path | None, on_step: Callable[[Step], Any] | None, stop: Callable[[], None], tokenizer: Any = None):
        super().__init__(daemon=True)
        self.steps: list[Step] = []
        self.evaluations: list[Step] = []
        self.samples: list[Sample] = []
        self._tokenizer = tokenizer
        self.error: BaseException | None = None
        self.stopped = False
        self._on_step, self._stop, self._copy = on_step, stop, copy
        os.mkfifo(path)
        self._ends = os.open(path, os.O_RDWR)  # both ends: writers come and go with restarts, and no open() waits
        self.start()

    def run(self) -> None:
        copy = open(self._copy, "w", encoding="utf-8") if self._copy is not None else None
        try:
            rest = b""
            while True:
                rest += os.read(self._ends, 1 << 16)
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    if not line:  # from `end`
                        return
                    if copy:
                        copy.write(line.decode() + "\n")
                        copy.flush()
                    self._take(json.loads(line))
        finally:
            if copy:
                copy.close()

    def _take(self, line: dict[str, Any]) -> None:
        if "sample" in line:
            ids = [*line["prompt"], *line["sample"]]
            self.samples.append(Sample(line["step"], line["prompt"], line["sample"], self._tokenizer.decode(ids) if self._tokenizer is not None else None))
            return
        evaluation = "eval_loss" in line
        step = Step(line["step"], line.get("eval_loss" if evaluation else "loss"), evaluation, line)
        (self.evaluations if evaluation else self.steps).append(step)
        if self._on_step is None or self.error is not None or self.stopped:
            return
        try:
            self.stopped = self._on_step(step) is False
        except BaseException as error:  # raised again where train was called
            self.error = error
        if self.stopped or self.error is not None:
            self._stop()

    def end(self) -> None:
        """After the writer's end: what it wrote is read, and the thread ends."""
        os.write(self._ends, b"\n\n")
        self.join()
        os.close(self._ends)


def train(model: Any, data: Any, *, steps: int, batch: int | None = None, cluster: Path | Mapping[str, Any] | None = None,
          evaluate: Any = None, on_step: Callable[[Step], Any] | None = None, output: Path | None = None, metrics: Path | None = None,
          export: Mapping[str, Any] | None = None, tokenizer: Any = None, quiet: bool = True, **options: Any) -> Run:
    """Trains a model on the devices of a cluster: `zorse-compile`, then `zorse-run`, bit for bit.

    model: a PyTorch module, which is exported (`export`: the arguments of zorse.export) and gets its trained weights at the end; an ONNX file; or a
    Bundle, which is trained as it was compiled. data: token ids in one dimension, arrays by input name with samples first, or a path
    (docs/running.md). steps: the number of the last step. batch: samples per step, of all devices together. cluster: as for zorse.compile.
    evaluate: held-back data of the same kinds. on_step: called after every step and evaluation with a Step; if it returns False, training ends
    after the steps that have begun, and the weights are those of that moment. output: a folder that keeps model, bundle and checkpoint; else they
    live as long as the result. metrics: a file for the lines of metrics, besides. tokenizer: with `sample_every`, something whose decode(ids) makes
    the text of samples, and whose encode(text) the ids of `sample_prompt`, where that is text. options: CompileOptions and RunOptions; those of both are
    compiled in. Raises ZorseError with what the tools say.
    """
    ready = isinstance(model, Bundle)
    check(options, RunOptions) if ready else check(options, CompileOptions, RunOptions)
    if ready and (batch is not None or cluster is not None or export):
        raise TypeError("a bundle has its batch, cluster and model already; give them to zorse.compile")
    if not ready and batch is None:
        raise TypeError("expected batch, the samples per step of all devices together")
    if options.get("sample_every"):
        if not ready:
            options.setdefault("sampling", True)
        prompt = options.get("sample_prompt")
        if isinstance(prompt, str) and tokenizer is not None:
            prompt = tokenizer.encode(prompt)
        if prompt is not None and not isinstance(prompt, str):
            options["sample_prompt"] = ",".join(str(int(i)) for i in prompt)
    temporary = tempfile.TemporaryDirectory(prefix="zorse-")
    folder = temporary.name if output is None else os.fspath(output)
    os.makedirs(folder, exist_ok=True)
    module, stored = None, None
    if ready:
        bundle = model
    else:
        compiled = of(CompileOptions, options)
        options = {name: value for name, value in options.items() if name not in compiled}
        path = model
        if not isinstance(model, (str, os.PathLike)):
            from .facts import stored_parameters
            from .torch_export import export as export_module
            module, path = model, os.path.join(folder, "model.onnx")
            arguments = dict(export or {})
            if "seq" in compiled:
                arguments.setdefault("sequence", compiled["seq"])
            export_module(module, path, **arguments)
            stored = stored_parameters(path)
        bundle = compile(path, os.path.join(folder, "model.zorse"), batch=batch, cluster=cluster, quiet=quiet, **compiled)
    checkpoint = os.path.join(folder, "trained.safetensors")
    pipe = os.path.join(temporary.name, "metrics")
    line = [bundle.path, "--data", data_words(data, temporary.name, "data"), "--steps", str(steps), "--checkpoint", checkpoint, "--metrics", pipe, *words(options)]
    if evaluate is not None:
        line += ["--eval", data_words(evaluate, temporary.name, "evaluate")]
    if quiet:
        line.append("--quiet")
    process: Any = None
    begun = threading.Event()

    def stop() -> None:
        begun.wait()
        process.send_signal(signal.SIGINT)

    lines = _Metrics(pipe, metrics, on_step, stop, tokenizer)
    try:
        process = _tools.start("zorse-run", line, quiet)
        begun.set()
        _tools.finish(process, "zorse-run", (0, 130) if on_step is not None else (0,))
    finally:
        begun.set()
        lines.end()
    if lines.error is not None:
        raise lines.error
    if process.returncode == 130 and not lines.stopped:
        raise KeyboardInterrupt
    weights = Weights(checkpoint)
    if module is not None:
        load_into(module, weights, stored)
    return Run(bundle, weights, lines.steps, lines.evaluations, lines.samples, lines.stopped, temporary)
