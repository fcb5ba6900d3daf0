"""zorse.train: from a module, an ONNX file or a bundle to trained weights."""
from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ._compile import Bundle, compile
from ._datasets import arrays_of, is_dataset
from ._files import data_words
from ._metrics import Change, Metrics, Sample, Step, duration, perplexity
from ._onnx import read_metadata
from ._progress import Progress, shows
from ._tools import Process, warn
from ._weights import Weights, load_into, same_tensors
from .options import CompileOptions, Path, RunOptions, check, of, words
from .torch_optimizers import Scheduler, is_optimizer, options_of, schedule_lines


class Folder:
    """Locations of model, bundle and checkpoint: given by the caller, or a temporary folder that
    is removed with this object unless it is kept."""

    def __init__(self, named: Path | None):
        self.path = tempfile.mkdtemp(prefix="zorse-") if named is None else os.fspath(named)
        os.makedirs(self.path, exist_ok=True)
        self._end = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True) if named is None else None

    def keep(self) -> None:
        if self._end is not None:
            self._end.detach()


@dataclass(repr=False)
class Run:
    """Results of a training run."""
    bundle: Bundle
    weights: Weights  #: trained parameters by name in the ONNX file; a tied parameter is under each of its names
    steps: list[Step]
    evaluations: list[Step]
    samples: list[Sample]
    stopped: bool  #: whether the callback stopped the run before its last step
    _folder: Any = field(default=None)  # temporary folder, kept alive while its files are needed
    ema_weights: Weights | None = None  #: moving averages of the parameters, with `ema_decay`
    changes: list[Change] = field(default_factory=list)  #: devices that left or joined, with `elastic`

    @property
    def losses(self) -> list[float | None]:
        return [s.loss for s in self.steps]

    @property
    def loss(self) -> float | None:
        """Loss of the last evaluation, or of the last step."""
        last = (self.evaluations or self.steps)[-1:]
        return last[0].loss if last else None

    @property
    def perplexity(self) -> float:
        """exp(loss), for language models with a mean cross-entropy loss."""
        return perplexity(self.loss)

    def save(self, path: Path) -> None:
        """Writes the trained parameters as a safetensors file."""
        shutil.copyfile(self.weights.path, path)

    def __repr__(self) -> str:
        what = "no step" if not self.steps else f"steps {self.steps[0].step} to {self.steps[-1].step}"
        loss = "" if self.loss is None else f", loss {self.loss:.4f}"
        seconds = sum(s.seconds or 0 for s in self.steps)
        return f"Run({what}{' (stopped)' if self.stopped else ''}{loss}, {duration(seconds)}, {len(self.weights)} tensors in {os.fspath(self.weights.path)!r})"


@dataclass
class Source:
    """The trained model: the exported PyTorch module (None: an ONNX file or a bundle), and the
    file's facts about parameters."""
    module: Any = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def _prompt(options: dict[str, Any], tokenizer: Any) -> None:
    """The prompt of samples as token ids."""
    prompt = options.get("prompt")
    if isinstance(prompt, str) and tokenizer is not None:
        prompt = tokenizer.encode(prompt)
    if prompt is not None and not isinstance(prompt, str):
        options["prompt"] = ",".join(str(int(i)) for i in prompt)


def own_objects(options: dict[str, Any], scheduler: Scheduler | None, module: Any, max_steps: int, folder: str) -> dict[str, Any]:
    """Options in which objects of PyTorch, an optimizer and a scheduler, are replaced by options of
    the tools. Gradients are then clipped only if an option asks for it."""
    if is_optimizer(options.get("optimizer")):
        from .torch_modules import unwrapped
        derived = options_of(options.pop("optimizer"), unwrapped(module))
        if given := sorted(set(derived) & set(options) - {"freeze", "param_group"}):
            raise TypeError(f"the optimizer object decides about '{given[0]}'; remove that option, or give optimizer='{derived['optimizer']}'")
        for name in ("freeze", "param_group"):
            if name in derived and options.get(name):
                options[name] = [*derived[name], *([options[name]] if isinstance(options[name], str) else options[name])]
        options = {"max_grad_norm": 0.0, **derived, **options}
    if scheduler is not None:
        options["lr_schedule_file"] = os.path.join(folder, "schedule.txt")
        with open(options["lr_schedule_file"], "w", encoding="utf-8") as file:
            file.write(schedule_lines(scheduler, max_steps))
    return options


def _read(data: Any, model: Any, tokenizer: Any, most: int, name: str) -> Any:
    """Data as data_words takes them: datasets become arrays of the module's inputs."""
    if not is_dataset(data):
        return data
    if isinstance(model, (str, os.PathLike, Bundle)):
        raise TypeError(f"{name}: a dataset is read for the inputs of a PyTorch module; for an ONNX file or a bundle give arrays by input name, or a path")
    from . import torch_modules
    return arrays_of(data, names=torch_modules.argument_names(torch_modules.unwrapped(model)), tokenizer=tokenizer, most=None if hasattr(data, "__len__") else most, name=name)


def exported(model: Any, data: Any, folder: str, sequence: int | None, export: Mapping[str, Any] | None, has_loss: bool) -> tuple[str, Source]:
    """Returns the ONNX file of a model, and its source. has_loss: whether the module must return its
    loss."""
    hub = isinstance(model, (str, os.PathLike)) and os.path.isfile(os.path.join(model, "config.json"))
    if isinstance(model, (str, os.PathLike)) and not hub:
        return os.fspath(model), Source(facts=read_metadata(model))
    from . import torch_modules
    module = torch_modules.from_hub(model) if hub else torch_modules.unwrapped(model)
    arguments = dict(export or {})
    if sequence is not None:
        arguments.setdefault("sequence", sequence)
    if "inputs" not in arguments:
        arguments.update(torch_modules.example(module, data, arguments))
    path = os.path.join(folder, "model.onnx")
    torch_modules.export(module, path, **arguments)
    if has_loss:
        torch_modules.check_loss(module, path)
    return path, Source(module, read_metadata(path))


def _identity(path: str) -> Any:
    try:
        there = os.stat(path)
    except OSError:
        return None
    return there.st_ino, there.st_mtime_ns


def write_back(source: Source, weights: Weights) -> None:
    """Copies the weights into the module. An error here must not lose the run."""
    try:
        left_out = load_into(source.module, weights, source.facts.get("stored"), strict=False)
    except Exception as error:
        left_out = [f"{type(error).__name__}: {error}"]
    if left_out:
        warn(f"{len(left_out)} trained tensors were not copied into the module; they are in the result's weights: {'; '.join(left_out[:5])}" +
             (" ..." if len(left_out) > 5 else ""))


def _note(error: BaseException, run: Run, source: Source, resumable: bool) -> None:
    """Adds a note to an exception that ends a run: the location of the weights and how to resume."""
    run._folder.keep()
    where = "the module has them, and they" if source.module is not None else "they"
    last = f"of step {run.steps[-1].step}" if run.steps else "that the run had"
    error.add_note(f"zorse: the weights {last} are not lost: {where} are in {run.weights.path} (the exception's attribute run has the whole result)" +
                   ("; resume=True resumes from the newest checkpoint" if resumable else ""))
    error.run = run  # type: ignore[attr-defined]


def train(model: Any, data: Any, *, max_steps: int | None = None, global_batch_size: int | None = None, cluster: Path | Mapping[str, Any] | None = None,
          eval_data: Any = None, on_step: Callable[[Step], Any] | None = None, output: Path | None = None, metrics_file: Path | None = None,
          export: Mapping[str, Any] | None = None, tokenizer: Any = None, lr_scheduler: Scheduler | None = None, quiet: bool = True, progress: bool | None = None,
          **options: Any) -> Run:
    """Trains a model on the devices of a cluster: `zorse-compile`, then `zorse-run`, with bitwise identical results.

    model: a PyTorch module that returns its loss, or a transformers module with a head, which is exported (`export`: the arguments of zorse.export) and receives
    its trained weights at the end; a directory of the Hugging Face hub; an ONNX file; or a Bundle, which is trained as it was compiled. data: token ids in one
    dimension, arrays by input name with samples first, a path (docs/guides/prepare-data.md), or, for a module, a dataset of PyTorch or Hugging Face, a DataLoader (its
    samples in its order) or a list of samples; rows of different length are filled with the tokenizer's pad_token_id, and labels with -100. max_steps: number of the last step. global_batch_size: samples per step of all devices
    together. cluster: as for zorse.compile. eval_data: evaluation data of the same kinds. on_step: called after every step and evaluation with a Step;
    if it returns False, training ends after the steps that have begun. output: a folder for model, bundle, metrics and checkpoint, which is kept; default: a
    temporary folder that exists as long as the result. metrics_file: a file for the lines of metrics instead of one in `output`. tokenizer:
    with `generate_interval` and for datasets, an object whose decode(ids) returns the text of samples and whose encode(text) returns the ids of a text `prompt`.
    lr_scheduler: a scheduler of torch.optim.lr_scheduler, or a function of the step (from 0) that returns the factor of the learning rate. quiet:
    the tools print nothing; warnings are still ZorseWarnings. progress: a progress line; None: if `quiet`, on terminals and in notebooks.
    options: CompileOptions and RunOptions; options of both are compiled in. `optimizer` may also be an object of torch.optim for the module's parameters, or [torch.optim.Muon(...), torch.optim.AdamW(...)]: it
    gives learning rates, weight decay and all other settings, by its groups; gradients are clipped only with `max_grad_norm`.

    Raises ZorseError with the message of the tool. If training has left weights before an exception (an interrupt, an exception of `on_step`, an error of
    the tool at the end), the module has them, their file is kept, and the exception's attribute `run` is the result.
    """
    ready = isinstance(model, Bundle)
    check(options, RunOptions) if ready else check(options, CompileOptions, RunOptions)
    if max_steps is None:
        raise TypeError("expected max_steps, the number of the last step")
    if ready and (global_batch_size is not None or cluster is not None or export):
        raise TypeError("a bundle has its batch, cluster and model already; give them to zorse.compile")
    if not ready and global_batch_size is None:
        raise TypeError("expected global_batch_size, the samples per step of all devices together")
    if options.get("generate_interval"):
        if not ready:
            options.setdefault("with_generation", True)
        _prompt(options, tokenizer)
    if ready and (lr_scheduler is not None or is_optimizer(options.get("optimizer"))):
        raise TypeError("a bundle has its optimizer already; give objects of PyTorch together with the module")
    folder, source, bundle = Folder(output), Source(), model
    most = max_steps * (global_batch_size or 1)
    data, eval_data = (_read(given, model, tokenizer, most, name) for given, name in ((data, "data"), (eval_data, "eval_data")))
    with tempfile.TemporaryDirectory(prefix="zorse-") as temporary:
        line = ["--data", data_words(data, temporary, "data"), "--max-steps", str(max_steps)]
        if eval_data is not None:
            line += ["--eval-data", data_words(eval_data, temporary, "eval_data")]
        if not ready:
            options = own_objects(options, lr_scheduler, model, max_steps, temporary)
            compiled = of(CompileOptions, options)
            options = {name: value for name, value in options.items() if name not in compiled}
            has_loss = not (compiled.get("loss") or compiled.get("loss_output"))
            path, source = exported(model, data, folder.path, compiled.get("seq_length"), export, has_loss)
            bundle = compile(path, os.path.join(folder.path, "model.zorse"), global_batch_size=global_batch_size, cluster=cluster, quiet=quiet, **compiled)
        line += words(options) + (["--quiet"] if quiet else [])
        averages = os.path.join(folder.path, "ema.safetensors") if not ready and compiled.get("ema_decay") else None
        if averages is not None:
            line += ["--save-ema", averages]
        lines = Metrics(folder.path if output is not None else temporary, metrics_file, bool(options.get("resume")), max_steps, tokenizer)
        shown = Progress(quiet and (shows() if progress is None else progress))
        run = _run(bundle, line, lines, folder, source, on_step, shown, quiet, bool(options.get("checkpoint_dir")))
        if averages is not None and os.path.exists(averages):
            run.ema_weights = Weights(averages, same_tensors(source.facts))
        return run


def _run(bundle: Bundle, line: Sequence[str], lines: Metrics, folder: Folder, source: Source, on_step: Callable[[Step], Any] | None, shown: Progress,
         quiet: bool, resumable: bool) -> Run:
    checkpoint = os.path.join(folder.path, "trained.safetensors")
    before = _identity(checkpoint)
    process = Process("zorse-run", [bundle.path, *line, "--save-weights", checkpoint, "--metrics-file", lines.path], quiet)
    stopped = failed = False

    def meanwhile() -> None:
        nonlocal stopped, failed
        for entry in lines.more():
            if not isinstance(entry, Step):
                continue
            shown.step(entry)
            if on_step is None or stopped or failed:
                continue
            failed = True  # in case the call does not return
            stopped = on_step(entry) is False
            failed = False
            if stopped:
                process.stop()

    try:
        code, error = process.wait(meanwhile)
    finally:
        shown.end()
        lines.close()
    if error is None and code != 0 and not (code == 130 and stopped):
        error = KeyboardInterrupt() if code == 130 else process.failure()
    if _identity(checkpoint) in (None, before):
        raise error if error is not None else process.failure()
    weights = Weights(checkpoint, same_tensors(source.facts))
    run = Run(bundle, weights, lines.of(Step), lines.of(Step, evaluation=True), lines.of(Sample), stopped, folder, changes=lines.of(Change))
    if source.module is not None:
        write_back(source, weights)
    if error is not None:
        _note(error, run, source, resumable)
        raise error
    return run
