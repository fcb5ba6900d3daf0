"""zorse.compile of a PyTorch module: an object that trains it step by step."""
from __future__ import annotations

import os
import tempfile
import time
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._compile import Bundle, compile_file
from ._datasets import arrays_of_batch
from ._files import data_words
from ._metrics import Metrics, Step
from ._tools import Process, ZorseError
from ._train import Folder, Source, exported, own_objects, write_back
from ._weights import Weights, same_tensors
from .options import CompileOptions, Path, RunOptions, check, of, words
from .torch_optimizers import Scheduler

_POLL_SECONDS = 0.0005
_ENDLESS = 1 << 40  # steps, if the caller does not say how many there are


class CompiledModule:
    """A module that is trained on the devices of a cluster, one step per call of `step`. zorse.compile makes one (docs/get-started/your-model.md has an example);
    the first step exports and compiles it. `with` closes it at the end."""

    def __init__(self, module: Any, output: Path | None, *, global_batch_size: int | None, cluster: Path | Mapping[str, Any] | None, quiet: bool, max_steps: int | None,
                 export: Mapping[str, Any] | None, lr_scheduler: Scheduler | None, tokenizer: Any, options: dict[str, Any]):
        from .torch_modules import unwrapped
        check(options, CompileOptions, RunOptions)
        ends = lr_scheduler is not None or options.get("lr_scheduler_type", "constant") not in ("constant", "inverse_sqrt") and "lr_decay_steps" not in options
        if max_steps is None and ends:
            raise TypeError("expected max_steps, the number of the last step: the schedule of the learning rate depends on it")
        self.module = unwrapped(module)
        self.bundle: Bundle | None = None  #: the compiled module, after the first step
        self._size, self._cluster, self._quiet, self._tokenizer = global_batch_size, cluster, quiet, tokenizer
        self._steps = _ENDLESS if max_steps is None else max_steps
        self._export, self._scheduler, self._options = export, lr_scheduler, options
        self._folder, self._source = Folder(output), Source()
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._process: Process | None = None
        self._resumes = bool(options.get("resume"))
        self._pipe = _Pipe(tempfile.mkdtemp(prefix="zorse-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))

    def step(self, batch: Any = None, /, **inputs: Any) -> Step:
        """Trains one step on a batch: a mapping by input name, a tuple in the order of the module's arguments, or keyword arguments; samples are first. Every batch
        has the shapes of the first one. Returns the loss before the update, the gradient norm and the learning rate."""
        arrays = self._arrays(inputs if batch is None else batch)
        if self._process is None:
            self._begin(arrays)
        self._pipe.send(data_words(arrays, self._pipe.folder, "batch"))
        return self._answer()

    def close(self) -> None:
        """Ends the run and copies the trained weights into the module. A later step continues it."""
        if self._process is None:
            return
        _, error = self._end()
        if error is not None:
            raise error

    def __enter__(self) -> CompiledModule:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    @property
    def _weights(self) -> str:
        return os.path.join(self._folder.path, "trained.safetensors")

    def _arrays(self, batch: Any) -> dict[str, np.ndarray]:
        """The inputs of a batch. They are checked here, because an error of the run would end it."""
        from .torch_modules import argument_names
        arrays = arrays_of_batch(batch, names=argument_names(self.module), tokenizer=self._tokenizer)
        shapes = {name: array.shape for name, array in arrays.items()}
        if self._shapes and shapes != self._shapes:
            said = lambda given: ", ".join(f"{name} {list(shape)}" for name, shape in given.items())
            raise ZorseError(f"batch: has {said(shapes)}, expected the shapes of the first batch, {said(self._shapes)}; pad or cut samples, and leave out an incomplete "
                             "last batch (DataLoader: drop_last=True)")
        samples = len(next(iter(arrays.values())))
        if self._size not in (None, samples):
            raise ZorseError(f"batch: has {samples} samples, expected global_batch_size={self._size}")
        self._shapes, self._size = shapes, samples
        return arrays

    def _begin(self, arrays: dict[str, np.ndarray]) -> None:
        """Compiles the module before the first step, and starts the run."""
        if self.bundle is None:
            self._compile(arrays)
        if not self._resumes and os.path.exists(self._weights):
            os.remove(self._weights)
        line = ["--data", f"stream:{self._pipe.open()}", "--max-steps", str(self._steps), "--save-weights", self._weights]
        options = {"checkpoint_dir": os.path.join(self._folder.path, "checkpoints"), **self._options, "resume": self._resumes}
        self._lines = Metrics(self._folder.path, None, self._resumes, self._steps)
        line += words(options) + ["--metrics-file", self._lines.path] + (["--quiet"] if self._quiet else [])
        self._process = Process("zorse-run", [os.fspath(self.bundle), *line], self._quiet)

    def _compile(self, arrays: dict[str, np.ndarray]) -> None:
        options = own_objects(self._options, self._scheduler, self.module, self._steps, self._folder.path)
        compiled = of(CompileOptions, options)
        has_loss = not (compiled.get("loss") or compiled.get("loss_output"))
        path, self._source = exported(self.module, arrays, self._folder.path, compiled.get("seq_length"), self._export, has_loss)
        self.bundle = compile_file(path, os.path.join(self._folder.path, "model.zorse"), self._size, self._cluster, self._quiet, compiled)
        self._options = {name: value for name, value in options.items() if name not in compiled}

    def _end(self) -> tuple[int, BaseException | None]:
        """Ends the run and copies the trained weights into the module, also if it has failed: its last checkpoint has them. Returns the exit code and the error."""
        assert self._process is not None
        process, self._process = self._process, None
        self._pipe.close()
        code, error = process.wait(self._lines.more)
        self._lines.close()
        if error is None and code not in (0, 130):
            error = process.failure()
        if os.path.exists(self._weights):
            write_back(self._source, Weights(self._weights, same_tensors(self._source.facts)))
            self._resumes = True
        return code, error

    def _answer(self) -> Step:
        """Waits for the result of the step that was sent last."""
        assert self._process is not None
        while True:
            running = self._process.running()
            for entry in self._lines.more():
                if isinstance(entry, Step) and not entry.evaluation:
                    return entry
            if not running:
                code, error = self._end()
                raise error or ZorseError(f"the run has ended after its max_steps, {self._steps}" if code == 0 else "the run was interrupted", code)
            time.sleep(_POLL_SECONDS)


class _Pipe:
    """The named pipe through which a run gets its batches, and the folder of their files."""

    def __init__(self, folder: str):
        self.folder, self._file = folder, -1
        self._end = weakref.finalize(self, _remove, folder)

    def open(self) -> str:
        path = os.path.join(self.folder, "batches")
        if not os.path.exists(path):
            os.mkfifo(path, 0o600)
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # for reading, too, so that it does not wait for the run
        return path

    def send(self, line: str) -> None:
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _remove(folder: str) -> None:
    import shutil
    shutil.rmtree(folder, ignore_errors=True)
