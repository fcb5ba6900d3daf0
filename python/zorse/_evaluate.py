"""zorse.evaluate: computes the loss of a bundle on data, without training."""
from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ._compile import Bundle
from ._files import data_words
from ._metrics import perplexity
from ._tools import call
from ._train import Run
from .options import Path, check, words


@dataclass(frozen=True)
class Evaluation:
    step: int  #: step of the checkpoint; 0 without one
    loss: float

    @property
    def perplexity(self) -> float:
        """exp(loss), for language models with a mean cross-entropy loss."""
        return perplexity(self.loss)


def evaluate(bundle: Run | Bundle | Path, data: Any, *, load_weights: Path | None = None, checkpoint_dir: Path | None = None,
             eval_iters: int = 0, throttle: Sequence[str] = (), **renamed: Any) -> Evaluation:
    """The mean loss over data, without dropout: `zorse-run --eval-only`.

    bundle: the result of zorse.train, whose trained parameters are evaluated; or a bundle, whose parameters are the initial ones unless `load_weights` or
    `checkpoint_dir` is given. data: as for zorse.train. load_weights: a file of parameters. checkpoint_dir: a checkpoint, or a directory of checkpoints (uses the
    newest). eval_iters: maximum number of batches; 0: all samples. Raises ZorseError with zorse-run's message.
    """
    check(renamed)
    path = bundle.bundle if isinstance(bundle, Run) else bundle
    if not isinstance(path, (Bundle, str, os.PathLike)):
        raise TypeError(f"expected the result of zorse.train, or a bundle, got {type(path).__name__}; train the module first")
    if isinstance(bundle, Run) and load_weights is None and checkpoint_dir is None:
        load_weights = bundle.weights.path
    with tempfile.TemporaryDirectory(prefix="zorse-") as folder:
        metrics = os.path.join(folder, "metrics.jsonl")
        line = [os.fspath(path), "--eval-only", "--eval-data", data_words(data, folder, "data"), "--eval-iters", str(eval_iters), "--metrics-file", metrics, "--quiet"]
        for flag, value in (("--load-weights", load_weights), ("--checkpoint-dir", checkpoint_dir)):
            line += [flag, os.fspath(value)] if value is not None else []
        call("zorse-run", line + words({"throttle": throttle or None}))
        with open(metrics, encoding="utf-8") as file:
            found = json.loads(file.readline())
    return Evaluation(found["step"], math.nan if found["eval_loss"] is None else found["eval_loss"])
