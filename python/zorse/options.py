"""Options of the tools as keyword arguments: `weight_decay=0.1` is `--weight-decay 0.1`.

A tuple or list is several words, True an option without a value, None and False an option that is not given. The tools (`zorse-compile --help`) and
docs/training.md, docs/running.md and docs/planning.md describe the options with units and defaults; this file defines the types.
"""
from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, get_type_hints

Path = str | os.PathLike[str]


class ModelOptions(TypedDict, total=False):
    """Options for importing a model (zorse-compile, zorse-plan)."""
    seq: int  #: sequence length, if the model's dimension is symbolic
    precision: Literal["f32", "tf32", "bf16", "f16", "f64", "f64:bf16", "f64:f16"]
    residual: Literal["compute", "f32"]
    accumulate: Literal["f32", "f16"]
    save: Literal["min-cut", "keep", "full"]
    dim: Mapping[str, int]  #: other symbolic dimensions
    loss: Literal["cross_entropy"]
    loss_output: str
    logits: str
    labels: str
    shift_labels: bool
    shifted_in_graph: Literal["yes", "no"]
    ignore_index: int
    train: Sequence[str]
    freeze: Sequence[str]
    trust_guess: bool
    trust_import: bool  #: skip the numerical check of the loss
    batch_norm_rows: int  #: samples per group for batch norm statistics


class StateOptions(TypedDict, total=False):
    """Options that determine the size of the optimizer states (zorse-compile, zorse-plan)."""
    optimizer: Literal["adamw", "adam", "sgd"]
    momentum: float
    decay: str


class CompileOptions(ModelOptions, StateOptions, total=False):
    """Options of zorse-compile."""
    profile: Path | Sequence[Path]
    plan: Path
    weights: Literal["auto", "copy", "reference", "later"]
    threads: int
    arch: str
    split_bodies: bool
    sampling: bool
    simulate_only: bool
    lr: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    nesterov: bool
    clip: float
    skip_nonfinite: bool
    schedule: Literal["constant", "linear", "cosine"]
    warmup: int  #: steps
    total_steps: int
    final_ratio: float
    loss_scale: float
    loss_scale_interval: int  #: steps
    seed: int


class RunOptions(TypedDict, total=False):
    """Options of zorse-run. `train` passes those that zorse-compile also has to zorse-compile, if
    it compiles."""
    shuffle: int  #: seed
    data_type: Literal["uint8", "uint16", "uint32", "int32", "int64"]  #: element type of token files without a header
    init: Path
    init_skip: str  #: comma-separated patterns
    eval_every: int  #: steps
    eval_batches: int
    lr: float
    schedule: Literal["constant", "linear", "cosine"]
    warmup: int  #: steps
    total_steps: int
    final_ratio: float
    clip: float
    seed: int
    nonfinite: Literal["skip", "stop"]
    expect: str
    tensorboard: Path
    page: Path
    trace: Path
    trace_steps: int
    report_memory: Path
    dump_gradients: Path
    per_sample_losses: Path
    sample_every: int  #: steps
    sample_tokens: int
    sample_prompt: str | Sequence[int]
    sample_temperature: float
    snapshots: Path
    snapshot_every: int  #: steps
    keep_snapshots: int
    resume: bool
    allow_change: bool
    processes: bool
    threads: bool  #: all devices in one process, also under a launcher
    restarts: int
    secret_file: Path
    listen: str
    node_connections: int
    heartbeat_seconds: float
    deadline_seconds: float
    join_seconds: float
    stall_seconds: float
    share_gpus: bool
    staged: bool
    throttle: Sequence[str]


class PlanOptions(ModelOptions, StateOptions, total=False):
    """Options of zorse-plan."""
    profile: Path
    objective: Literal["throughput", "cost"]
    least_throughput: float  #: minimum samples per second
    most_price: float  #: maximum cost per hour
    stages: int
    pipelines: int
    microbatch: int
    schedule: str
    communication: str
    split_backward: Literal["yes", "no"]
    exclude: Sequence[str]
    no_techniques: bool
    candidates: int
    seed: int
    threads: int
    planner: str


def check(given: Mapping[str, Any], *kinds: type) -> None:
    """Raises TypeError for an option that none of `kinds` has, and suggests the closest one."""
    known = sorted({name for kind in kinds for name in get_type_hints(kind)})
    for name in given:
        if name not in known:
            other = next((f for f, kind in (("compile", CompileOptions), ("plan", PlanOptions), ("train", RunOptions)) if name in get_type_hints(kind)), None)
            if other:
                raise TypeError(f"there is no option '{name}' here; it is one of zorse.{other}")
            near = difflib.get_close_matches(name, known, 1)
            raise TypeError(f"there is no option '{name}'" + (f"; did you mean '{near[0]}'?" if near else "; known options: " + ", ".join(known)))


def of(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `given` that `kind` has."""
    hints = get_type_hints(kind)
    return {name: value for name, value in given.items() if name in hints}


def words(given: Mapping[str, Any]) -> list[str]:
    """Options as words of a command line."""
    list_of_words: list[str] = []
    for name, value in given.items():
        flag = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            list_of_words.append(flag)
        elif isinstance(value, Mapping):
            for key, number in value.items():
                list_of_words += [flag, f"{key}={number}"]
        elif isinstance(value, (list, tuple)):
            list_of_words += [flag, *(_word(v) for v in value)]
        else:
            list_of_words += [flag, _word(value)]
    return list_of_words


def _word(value: Any) -> str:
    if isinstance(value, float):
        return repr(value)  # all digits, so that the tool gets exactly this value
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
