"""Options of the tools as keyword arguments: `weight_decay=0.1` is `--weight-decay 0.1`.

A tuple or list is several words, True an option without a value, None and False an option that is not given. The tools (`zorse-compile --help`) and
docs/reference/commands describe the options with units and defaults; this file defines the types.
"""
from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, get_type_hints

Path = str | os.PathLike[str]


class ModelOptions(TypedDict, total=False):
    """Options for importing a model (zorse-compile, zorse-plan)."""
    seq_length: int  #: sequence length, if the model's dimension is symbolic
    precision: Literal["f32", "tf32", "bf16", "f16", "f64", "f64:bf16", "f64:f16"]
    fp32_residual_connection: bool
    accumulate: Literal["f32", "f16"]
    recompute: Literal["min-cut", "none", "full"]
    dim: Mapping[str, int]  #: other symbolic dimensions
    loss: Literal["cross_entropy"]
    loss_output: str
    logits: str
    labels: str
    shift_labels: bool
    labels_shifted_in_graph: Literal["yes", "no"]
    ignore_index: int
    train: Sequence[str]
    freeze: Sequence[str]
    infer_trainable: bool
    trust_import: bool  #: skip the numerical check of the loss
    group_rows: int  #: consecutive samples that losses and batch norms combine; 0: none


class StateOptions(TypedDict, total=False):
    """Options that plans depend on (zorse-compile, zorse-plan)."""
    optimizer: Literal["adamw", "adam", "sgd", "lion", "rmsprop", "adagrad", "adadelta", "adamax", "radam", "muon", "adafactor", "adamw8bit", "adam8bit"]
    momentum: float
    centered: bool
    amsgrad: bool
    ema_decay: float  #: decay of the moving average of parameters
    weight_decay_params: str
    max_grad_norm: float


class ScheduleOptions(TypedDict, total=False):
    """The learning rate and its schedule (zorse-compile, zorse-run)."""
    lr: float
    lr_scheduler_type: Literal["constant", "linear", "cosine", "polynomial", "cosine_with_restarts", "inverse_sqrt", "warmup_stable_decay", "one_cycle"]
    warmup_steps: int  #: steps
    lr_decay_steps: int
    min_lr_ratio: float
    lr_decay_power: float
    lr_cycles: int
    lr_wsd_decay_steps: int
    lr_wsd_decay_style: Literal["linear", "cosine", "minus_sqrt"]
    lr_schedule_file: Path


class CompileOptions(ModelOptions, StateOptions, ScheduleOptions, total=False):
    """Options of zorse-compile."""
    profile: Path | Sequence[Path]
    plan: Path
    tensor_parallel_size: int  #: maximum number of devices that divide a unit, without a plan
    gradient_wire: Literal["f32", "bf16", "bf16:sites"]  #: type in which gradients travel between nodes
    weights: Literal["auto", "embed", "reference", "defer"]
    num_threads: int
    cpu_arch: str
    compile_all_functions: bool
    with_generation: bool
    simulate_only: bool
    betas: tuple[float, float]
    eps: float
    alpha: float
    weight_decay: float
    param_group: Sequence[str | Mapping[str, Any]]  #: texts of --param-group, or {"params": patterns, "lr": ..., "weight_decay": ..., "optimizer": ...}
    nesterov: bool
    no_nesterov: bool  #: of Muon
    muon_adjust_lr: Literal["match_rms_adamw", "original"]
    beta2_decay: float  #: of Adafactor, as the next three
    eps2: float
    update_clip: float
    no_scale_parameter: bool
    clip_grad_value: float
    initial_loss_scale: float
    loss_scale_window: int  #: steps
    seed: int


class RunOptions(ScheduleOptions, total=False):
    """Options of zorse-run. `train` passes those that zorse-compile also has to zorse-compile, if
    it compiles."""
    shuffle_seed: int  #: seed
    data_type: Literal["uint8", "uint16", "uint32", "int32", "int64"]  #: element type of token files without a header
    load_weights: Path
    ignore_tensors: str  #: comma-separated patterns
    eval_interval: int  #: steps
    eval_iters: int
    max_grad_norm: float
    seed: int
    save_ema: Path
    on_nonfinite: Literal["skip", "stop"]
    expect_digest: str
    tensorboard_dir: Path
    html_report: Path
    trace: Path
    trace_steps: int
    memory_report: Path
    dump_gradients: Path
    dump_losses: Path
    generate_interval: int  #: steps
    max_new_tokens: int
    prompt: str | Sequence[int]
    temperature: float
    checkpoint_dir: Path
    save_interval: int  #: steps
    save_total_limit: int
    memory_checkpoint_interval: int  #: steps
    memory_checkpoint_dir: Path
    replicate_memory_checkpoints: bool
    resume: bool
    allow_config_change: bool
    spawn: bool
    in_process: bool  #: all devices in one process, also under a launcher
    max_restarts: int
    elastic: bool  #: with `spawn`: continue with the devices that are left
    min_devices: int
    rejoin_seconds: float
    device_discovery_script: str
    start_command: str
    wait_seconds: float
    secret_file: Path
    local_addr: str
    connections_per_peer: int
    heartbeat_interval: float
    heartbeat_timeout: float
    rdzv_timeout: float
    watchdog_timeout: float
    share_gpus: bool
    host_staged: bool
    throttle: Sequence[str]


class PlanOptions(ModelOptions, StateOptions, total=False):
    """Options of zorse-plan."""
    profile: Path
    objective: Literal["throughput", "cost"]
    min_throughput: float  #: minimum samples per second
    max_price: float  #: maximum cost per hour
    pipeline_stages: int
    num_pipelines: int
    tensor_parallel_size: int  #: maximum number of devices that divide a unit
    gradient_wire: Literal["f32", "bf16", "bf16:sites"]  #: type in which gradients travel between nodes
    max_micro_batch_size: int
    pipeline_schedule: str
    overlap_comm: bool
    send_protocol: Literal["rendezvous", "eager"]
    split_backward: Literal["yes", "no"]
    exclude: Sequence[str]
    no_memory_optimizations: bool
    search_budget: int
    search_seconds: float
    optimizer_in_backward: bool
    seed: int
    num_threads: int
    planner: str
    near: Path  #: plan.json or bundle of another cluster to adapt


_RENAMED_ARGUMENTS = {"batches": "eval_iters", "communication": "overlap_comm", "evaluate": "eval_data"}  #: arguments that are not named like the flag


def _present_names(old: str) -> list[str]:
    """The present names of an option or argument that earlier versions called `old`; empty if there was none."""
    if old in _RENAMED_ARGUMENTS:
        return [_RENAMED_ARGUMENTS[old]]
    with open(os.path.join(os.path.dirname(__file__), "renamed_options.def"), encoding="utf-8") as f:
        renamed = dict(re.findall(r'^RENAMED\("([^"]*)", "([^"]*)"\)$', f.read(), re.M))
    return renamed.get(old.replace("_", "-"), "").replace("-", "_").split()

_USUAL = {
    "global_batch_size": "batch_size train_batch_size per_device_train_batch_size gradient_accumulation_steps",
    "max_steps": "epochs num_epochs n_epochs max_epochs num_train_epochs num_steps train_steps",
    "seq_length": "seq_len sequence_length max_length max_seq_length block_size context_length",
    "lr": "learning_rate",
    "lr_scheduler_type": "scheduler lr_schedule",
    "warmup_steps": "num_warmup_steps lr_warmup_steps warmup_iters",
    "max_grad_norm": "grad_clip clip_grad clip_grad_norm gradient_clipping gradient_clip_val",
    "weight_decay": "wd",
    "betas": "beta1 beta2 adam_beta1 adam_beta2",
    "alpha": "rho",
    "ema_decay": "ema",
    "param_group": "param_groups parameter_groups",
    "clip_grad_value": "clip_value grad_clip_value",
    "eps": "epsilon adam_epsilon",
    "optimizer": "optim opt optimiser",
    "precision": "dtype torch_dtype mixed_precision amp bf16 fp16",
    "eval_data": "val_data valid_data validation_data eval_dataset",
    "eval_interval": "eval_steps eval_every",
    "checkpoint_dir": "checkpoints save_dir ckpt_dir",
    "save_interval": "save_steps save_every",
    "resume": "resume_from_checkpoint",
    "output": "output_dir out_dir",
    "on_step": "callback callbacks",
    "cluster": "devices hosts",
}  #: options and arguments, with the names that they have elsewhere


def check(given: Mapping[str, Any], *kinds: type) -> None:
    """Raises TypeError for an option that none of `kinds` has, and suggests the closest one."""
    known = sorted({name for kind in kinds for name in get_type_hints(kind)})
    for name in given:
        if name not in known:
            if names := _present_names(name):
                now = [n for n in names if n in known] or [", ".join(names)]
                raise TypeError(f"option '{name}' is now '{now[0]}'")
            other = next((f for f, kind in (("compile", CompileOptions), ("plan", PlanOptions), ("train", RunOptions)) if name in get_type_hints(kind)), None)
            if other:
                raise TypeError(f"there is no option '{name}' here; it is one of zorse.{other}")
            usual = [n for n, names in _USUAL.items() if kinds and name in names.split()]
            near = usual or difflib.get_close_matches(name, known, 1)
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
        if name == "param_group":
            list_of_words += [flag, *([value] if isinstance(value, str) else map(_group, value))]
        elif value is True:
            list_of_words.append(flag)
        elif isinstance(value, Mapping):
            for key, number in value.items():
                list_of_words += [flag, f"{key}={number}"]
        elif isinstance(value, (list, tuple)):
            list_of_words += [flag, *(_word(v) for v in value)]
        else:
            list_of_words += [flag, _word(value)]
    return list_of_words


def _group(group: str | Mapping[str, Any]) -> str:
    """A value of --param-group."""
    if isinstance(group, str):
        return group
    if unknown := set(group) - {"params", "lr", "lr_scale", "weight_decay", "optimizer"}:
        raise TypeError(f"param_group: there is no '{sorted(unknown)[0]}'; a group has params (names or patterns), lr or lr_scale, and weight_decay")
    names = group.get("params", ())
    return ",".join([names] if isinstance(names, str) else names) + ":" + ",".join(f"{key}={_word(value)}" for key, value in group.items() if key != "params")


def _word(value: Any) -> str:
    if isinstance(value, float):
        return repr(value)  # all digits, so that the tool gets exactly this value
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
