"""Optimizers of torch.optim, torchao, bitsandbytes and transformers and learning rate schedulers as options of zorse-compile."""
from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._tools import ZorseError, warn

_KINDS: dict[str, tuple[str, dict[str, str]]] = {
    "SGD": ("sgd", {"momentum": "momentum", "nesterov": "nesterov"}),
    "Adam": ("adam", {"betas": "betas", "eps": "eps", "amsgrad": "amsgrad"}),
    "AdamW": ("adamw", {"betas": "betas", "eps": "eps", "amsgrad": "amsgrad"}),
    "Lion": ("lion", {"betas": "betas"}),
    "RMSprop": ("rmsprop", {"alpha": "alpha", "eps": "eps", "momentum": "momentum", "centered": "centered"}),
    "Adagrad": ("adagrad", {"eps": "eps"}),
    "Adadelta": ("adadelta", {"rho": "alpha", "eps": "eps"}),
    "Adamax": ("adamax", {"betas": "betas", "eps": "eps"}),
    "RAdam": ("radam", {"betas": "betas", "eps": "eps"}),
    "Adafactor": ("adafactor", {"eps": "eps", "beta2_decay": "beta2_decay", "decay_rate": "beta2_decay", "d": "update_clip", "clip_threshold": "update_clip"}),
    "AdamW8bit": ("adamw8bit", {"betas": "betas", "eps": "eps"}),
    "Adam8bit": ("adam8bit", {"betas": "betas", "eps": "eps"}),
    "Muon": ("muon", {"momentum": "momentum", "nesterov": "nesterov", "adjust_lr_fn": "muon_adjust_lr"}),
}  #: by class: optimizer and options; keys of its parameter groups with the option of each
_NEUTRAL = {"dampening": 0, "maximize": False, "lr_decay": 0, "initial_accumulator_value": 0, "decoupled_weight_decay": False, "ns_steps": 5,
            "ns_coefficients": (3.4445, -4.775, 2.0315), "eps": 1e-7, "amsgrad": False, "beta1": None, "scale_parameter": False, "relative_step": False,
            "warmup_init": False, "alpha": 0.0, "t_alpha": None, "t_beta3": None}  #: values without effect, of keys that have no option
_IGNORED = {"params", "lr", "initial_lr", "weight_decay", "foreach", "capturable", "differentiable", "fused", "param_names", "decoupled_weight_decay", "name"}
_LONGEST = 60000  # characters of one word of a command line, which Linux limits to 128 KiB


def is_optimizer(given: Any) -> bool:
    return given is not None and not isinstance(given, str)


def _kind(optimizer: Any) -> tuple[str, dict[str, str]]:
    name = type(optimizer).__name__
    if not hasattr(optimizer, "param_groups") or name not in _KINDS:
        raise ZorseError(f"optimizer: expected a name, or an object of torch.optim with one of the classes {', '.join(_KINDS)}, got {name}")
    kind, options = _KINDS[name]
    if kind == "adam" and optimizer.param_groups[0].get("decoupled_weight_decay"):
        kind = "adamw"
    return kind, options


def _check(optimizer: Any, known: Mapping[str, str], kind: str) -> None:
    """Checks that groups differ only in learning rate and weight decay, and have no option without
    a counterpart."""
    first = optimizer.param_groups[0]
    for group in optimizer.param_groups:
        for key, value in group.items():
            if key in known and value != first.get(key):
                raise ZorseError(f"optimizer: its groups have different {key} ({first.get(key)} and {value}); groups may differ in lr and weight_decay")
            if key in known or key in _IGNORED and not (key == "decoupled_weight_decay" and value and kind not in ("adam", "adamw")):
                continue
            if key not in _NEUTRAL:
                raise ZorseError(f"optimizer: the option {key}={value!r} of {type(optimizer).__name__} has no counterpart")
            if value != _NEUTRAL[key]:
                raise ZorseError(f"optimizer: {key}={value!r} is not supported; expected {key}={_NEUTRAL[key]!r}")
    if optimizer.state:
        warn(f"optimizer: the states that {type(optimizer).__name__} has from earlier steps are not used; training begins with empty states")


def _names(module: Any, optimizer: Any) -> tuple[list[list[str]], list[str]]:
    """Names of the parameters of each group, and of trained parameters that are in none."""
    known: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        known.setdefault(id(parameter), []).append(name)
    groups, taken = [], set()
    for group in optimizer.param_groups:
        names: list[str] = []
        for parameter in group["params"]:
            if id(parameter) not in known:
                raise ZorseError(f"optimizer: a parameter of shape {tuple(parameter.shape)} is not one of the module; create the optimizer from the parameters of the "
                                 "module that is trained")
            taken.add(id(parameter))
            names += known[id(parameter)][:1] if parameter.requires_grad else []
        groups.append(names)
    return groups, [name for name, parameter in module.named_parameters() if parameter.requires_grad and id(parameter) not in taken]


def _group_words(names: Sequence[str], settings: str) -> list[str]:
    """Values of --param-group, each short enough for a command line."""
    words, line = [], ""
    for name in names:
        if line and len(line) + len(name) > _LONGEST:
            words.append(f"{line}:{settings}")
            line = ""
        line += ("," if line else "") + name
    return words + ([f"{line}:{settings}"] if line else [])


def _parts(optimizer: Any) -> list[Any]:
    """The optimizers of a training: one, or Muon and the AdamW of the parameters that are no matrices."""
    parts = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    kinds = [_kind(part)[0] for part in parts]
    if len(parts) != 1 and sorted(kinds) != ["adamw", "muon"]:
        raise ZorseError(f"optimizer: several optimizers are supported as [torch.optim.Muon, torch.optim.AdamW], got {', '.join(type(part).__name__ for part in parts)}")
    return sorted(parts, key=lambda part: _kind(part)[0] != "muon")


def _own_options(optimizer: Any) -> dict[str, Any]:
    """Options that all groups of an optimizer share."""
    kind, known = _kind(optimizer)
    _check(optimizer, known, kind)
    if getattr(optimizer, "block_size", 256) != 256 or getattr(optimizer, "bf16_stochastic_round", False):
        raise ZorseError(f"optimizer: {type(optimizer).__name__} is supported with block_size=256 and bf16_stochastic_round=False")
    first, options = optimizer.param_groups[0], {}
    for key, option in known.items():
        value = first.get(key)
        if key == "adjust_lr_fn":
            if value not in (None, "original", "match_rms_adamw"):
                raise ZorseError(f"optimizer: adjust_lr_fn={value!r} is not supported; expected 'original' or 'match_rms_adamw'")
            options[option] = value or "original"
        elif kind == "muon" and key == "nesterov":
            options["no_nesterov"] = not value
        elif kind == "adafactor" and key == "eps":
            options.update(_adafactor_epsilon(first))
        elif value is not None and value is not False and not (key == "momentum" and value == 0):
            options[option] = value
    return options


def _adafactor_epsilon(group: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the two epsilons of Adafactor: of torch.optim, or of transformers with scale_parameter=False, whose first one is a square."""
    first, second = group["eps"]
    if "scale_parameter" in group:
        return {"eps": first ** 0.5, "no_scale_parameter": True}
    return {"eps2": second} if first is None else {"eps": first, "eps2": second}


def options_of(optimizer: Any, module: Any) -> dict[str, Any]:
    """Options of zorse-compile that train as `optimizer` does, or as [Muon, AdamW] do. The learning rate is that of the group with most elements (of Muon); other
    groups are relative to it."""
    parts = _parts(optimizer)
    kind = _kind(parts[0])[0]
    size = lambda group: sum(p.numel() for p in group["params"] if p.requires_grad)
    base = max(parts[0].param_groups, key=size)
    rate = lambda group: float(group.get("initial_lr", group["lr"]))
    options: dict[str, Any] = {"optimizer": kind, "lr": rate(base), "weight_decay": float(base["weight_decay"]), "weight_decay_params": "all"}
    others, unused = [], None
    for part in parts:
        options.update(_own_options(part))
        groups, left = _names(module, part)
        unused = left if unused is None else [name for name in unused if name in left]
        for group, names in zip(part.param_groups, groups):
            same = rate(group) == rate(base) and float(group["weight_decay"]) == float(base["weight_decay"])
            if not names or same and kind != "muon":
                continue
            if rate(base) == 0:
                raise ZorseError("optimizer: its largest group has lr=0, and other groups have not; set requires_grad=False for parameters that are not trained")
            settings = f"lr_scale={rate(group) / rate(base)!r},weight_decay={float(group['weight_decay'])!r}"
            others += _group_words(names, settings + (f",optimizer={_kind(part)[0]}" if kind == "muon" else ""))
    if others:
        options["param_group"] = others
    if unused:
        options["freeze"] = unused
    return options


def _factors(scheduler: Any, steps: int) -> list[float]:
    """Factors of the learning rate in steps 1, 2, ...; the scheduler and its optimizer are
    unchanged."""
    if callable(scheduler) and not hasattr(scheduler, "optimizer"):
        return [float(scheduler(step)) for step in range(steps)]
    if type(scheduler).__name__ == "ReduceLROnPlateau":
        raise ZorseError("lr_scheduler: ReduceLROnPlateau depends on losses of the run; end the run by on_step and start the next one with another lr, or use a schedule of steps")
    optimizer = scheduler.optimizer
    before, rates = dict(scheduler.state_dict()), [group["lr"] for group in optimizer.param_groups]
    initial = [float(group.get("initial_lr", group["lr"])) for group in optimizer.param_groups]
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(steps):
            factors = [group["lr"] / base if base else 1.0 for group, base in zip(optimizer.param_groups, initial)]
            if max(factors) - min(factors) > 1e-9 * max(map(abs, factors)):
                raise ZorseError("lr_scheduler: groups have different schedules; expected one factor for all groups")
            found.append(float(factors[0]))
            try:
                scheduler.step()
            except ValueError:  # OneCycleLR ends after its steps
                found += [found[-1]] * (steps - len(found))
                break
    scheduler.load_state_dict(before)
    for group, rate in zip(optimizer.param_groups, rates):
        group["lr"] = rate
    return found


def schedule_lines(scheduler: Any, steps: int) -> str:
    """A file for --lr-schedule-file: factors of a PyTorch scheduler, or of a function of the step (from 0, as in LambdaLR). Points between which factors are
    linear are omitted."""
    factors = _factors(scheduler, steps)
    kept = [0]
    for i in range(1, len(factors) - 1):
        last = kept[-1]
        between = factors[last] + (factors[i + 1] - factors[last]) * (i - last) / (i + 1 - last)
        if abs(between - factors[i]) > 1e-15 * abs(factors[i]):
            kept.append(i)
    if len(factors) > 1:
        kept.append(len(factors) - 1)
    return "".join(f"{i + 1} {factors[i]!r}\n" for i in kept)


Scheduler = Callable[[int], float] | Any
