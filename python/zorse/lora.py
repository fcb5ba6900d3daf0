"""Low-rank adapters (LoRA): a frozen linear layer W gets (alpha / r) B A added, and only A [r, in] and B [out, r] are trained. Names and initial values are those of
PEFT, so PEFT can load the result: zorse-export --hub writes adapter_model.safetensors.

    from zorse.lora import add_lora
    add_lora(model, rank=8, alpha=16, targets=["q_proj", "v_proj"])
"""
import math

import torch
import torch.nn.functional as F


class Adapted(torch.nn.Module):
    """A linear layer with its weight and bias under their old names, and an adapter.
    `fan_in_fan_out`: the weight has shape [in, out] (GPT-2's Conv1D)."""

    def __init__(self, layer, rank, scale, fan_in_fan_out):
        super().__init__()
        self.weight, self.scale, self.fan_in_fan_out = layer.weight, scale, fan_in_fan_out
        self.register_parameter("bias", layer.bias)
        ins, outs = layer.weight.shape if fan_in_fan_out else reversed(layer.weight.shape)
        self.lora_A = torch.nn.Linear(ins, rank, bias=False)
        self.lora_B = torch.nn.Linear(rank, outs, bias=False)
        torch.nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        torch.nn.init.zeros_(self.lora_B.weight)  # the initial model is unchanged
        # Initial values for the file of a module without values (parameters_on_meta): checkpoints
        # of the base model do not contain them.
        self.initial = {name: p.detach() for name, p in self.named_parameters() if name.startswith("lora_")}
        self.to(layer.weight.device)

    def forward(self, x):
        y = F.linear(x, self.weight.t() if self.fan_in_fan_out else self.weight, self.bias)
        return y + self.lora_B(self.lora_A(x)) * self.scale


def parse(text):
    """Parses 'r=8,alpha=16,targets=q_proj,v_proj' into the arguments of add_lora."""
    values, key = {}, None
    for part in text.split(","):
        if "=" in part:
            key, part = part.split("=", 1)
            if key in values:
                raise ValueError(f"--lora: {key} appears twice in '{text}'")
            values[key] = []
        if key is None or not part:
            raise ValueError(f"--lora: expects r=8,alpha=16,targets=q_proj,v_proj, got '{text}'")
        values[key].append(part)
    unknown = set(values) - {"r", "alpha", "targets"}
    if unknown or not {"r", "targets"} <= set(values):
        raise ValueError(f"--lora: expects r, targets and optionally alpha, as in r=8,alpha=16,targets=q_proj,v_proj; got '{text}'")
    try:
        (rank,), (alpha,) = values["r"], values.get("alpha", values["r"])
        rank, alpha = int(rank), float(alpha)
    except ValueError:
        raise ValueError(f"--lora: expects a whole number r and a number alpha, got '{text}'") from None
    return {"rank": rank, "alpha": alpha, "targets": values["targets"]}


def fan_in_fan_out(layer):
    """Whether a linear layer stores its weight as [in, out]; None if it is not a linear layer."""
    return False if isinstance(layer, torch.nn.Linear) else True if type(layer).__name__ == "Conv1D" else None


def add_lora(model, rank, alpha, targets):
    """Freezes all of `model` and adds adapters to the linear layers with paths that end with one of
    `targets`; returns their paths."""
    if rank < 1:
        raise ValueError(f"LoRA: expects a rank r of at least 1, got {rank}")
    linear = {path: m for path, m in model.named_modules() if fan_in_fan_out(m) is not None}
    chosen = {t: [path for path, m in model.named_modules() if path == t or path.endswith("." + t)] for t in targets}
    for target, paths in chosen.items():
        wrong = [path for path in paths if path not in linear]
        if not paths or wrong:
            there = ", ".join(sorted({path.rsplit(".", 1)[-1] for path in linear}))
            raise ValueError(f"LoRA: target '{target}' " + (f"is '{wrong[0]}', a {type(model.get_submodule(wrong[0])).__name__} and not a linear layer" if wrong else "is not a module of the model") +
                             f"; its linear layers are called {there}")
    for p in model.parameters():
        p.requires_grad_(False)
    paths = sorted({path for group in chosen.values() for path in group})
    for path in paths:
        parent, _, name = path.rpartition(".")
        layer = linear[path]
        setattr(model.get_submodule(parent), name, Adapted(layer, rank, alpha / rank, fan_in_fan_out(layer)))
    model.lora = {"r": rank, "alpha": alpha, "targets": list(targets), "fan_in_fan_out": any(fan_in_fan_out(linear[path]) for path in paths)}
    return paths
