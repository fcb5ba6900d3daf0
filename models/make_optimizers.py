"""Make models/small/mlp-tiny.onnx, mlp-deep.onnx, mlp-large.onnx, optimizers.tokens.bin and optimizers.reference.json: fifty steps of torch.optim in double precision for every optimizer, decay
rule and schedule, which test/e2e/optimizers.py compares with. Run again only to change them:

    python models/make_optimizers.py
"""
import fnmatch
import json
import os
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import transformers.optimization as hugging_face
from torch.optim import lr_scheduler

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
from export import export

ROWS, LENGTH, STEPS, VOCABULARY = 4, 6, 50, 16


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 8)
        self.hidden = nn.Linear(8, 12)
        self.norm = nn.LayerNorm(12)
        self.out = nn.Linear(12, VOCABULARY)

    def forward(self, input_ids, labels):
        logits = self.out(self.norm(torch.tanh(self.hidden(self.embed(input_ids)))))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Deep(nn.Module):
    """Hidden layers of several shapes, for Muon. The embedding, the output, biases and gains are updated by AdamW."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 8)
        self.wide, self.square, self.narrow = nn.Linear(8, 24), nn.Linear(24, 24), nn.Linear(24, 16, bias=False)
        self.norm = nn.LayerNorm(16)
        self.out = nn.Linear(16, VOCABULARY)

    def forward(self, input_ids, labels):
        hidden = torch.tanh(self.narrow(torch.tanh(self.square(torch.tanh(self.wide(self.embed(input_ids)))))))
        return F.cross_entropy(self.out(self.norm(hidden)).flatten(0, 1), labels.flatten())


class Large(nn.Module):
    """Parameters that are large enough for 8-bit states and small ones, and one of three dimensions for Adafactor."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 8)
        self.rise, self.fall = nn.Linear(8, 512), nn.Linear(512, 64)
        self.mix = nn.Parameter(torch.randn(4, 16, 16) / 4)
        self.norm = nn.LayerNorm(64)
        self.out = nn.Linear(64, VOCABULARY)

    def forward(self, input_ids, labels):
        hidden = torch.tanh(self.fall(torch.tanh(self.rise(self.embed(input_ids)))))
        heads = hidden.unflatten(-1, (4, 1, 16)) @ self.mix
        logits = self.out(self.norm(heads.flatten(-3)))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


MODELS = {"tiny": Tiny, "deep": Deep, "large": Large}  #: by name in mlp-NAME.onnx
MODEL_OF = {"muon": "deep", "adafactor": "large", "adam8bit": "large", "adamw8bit": "large"}  #: by optimizer; "tiny" of all others

CLIPPED = ("adamw", "adamw8bit", "lion", "muon")  # weight decay 0.1 and gradient norm 1 by default

# Options of zorse-compile, and their equivalents in PyTorch.
CASES = [
    {"optimizer": "sgd", "lr": 0.5},
    {"optimizer": "sgd", "lr": 0.2, "weight-decay": 0.1},
    {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9},
    {"optimizer": "sgd", "lr": 0.1, "momentum": 0.8, "weight-decay": 0.05, "weight-decay-params": "all"},
    {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight-decay": 0.1, "nesterov": True},
    {"optimizer": "sgd", "lr": 0.3, "max-grad-norm": 0.25},
    {"optimizer": "adam", "lr": 0.02},
    {"optimizer": "adam", "lr": 0.02, "weight-decay": 0.3, "weight-decay-params": "all"},
    {"optimizer": "adam", "lr": 0.02, "betas": "0.8,0.99", "eps": 1e-3, "weight-decay": 0.1},
    {"optimizer": "adamw", "lr": 0.02},
    {"optimizer": "adamw", "lr": 0.02, "weight-decay": 0.5, "weight-decay-params": "all", "max-grad-norm": 0},
    {"optimizer": "adamw", "lr": 0.02, "weight-decay": 0.5, "weight-decay-params": "none"},
    {"optimizer": "adamw", "lr": 0.02, "weight-decay": 0.5, "weight-decay-params": "names:embed,norm.weight"},
    {"optimizer": "adamw", "lr": 0.05, "max-grad-norm": 0.3, "warmup-steps": 4},
    {"optimizer": "adamw", "lr": 0.05, "lr-scheduler-type": "linear", "lr-decay-steps": 10, "min-lr-ratio": 0.1},
    {"optimizer": "adamw", "lr": 0.05, "lr-scheduler-type": "linear", "warmup-steps": 3, "lr-decay-steps": 8, "min-lr-ratio": 0.0},
    {"optimizer": "adamw", "lr": 0.05, "lr-scheduler-type": "cosine", "warmup-steps": 2, "lr-decay-steps": 9, "min-lr-ratio": 0.05},
    {"optimizer": "sgd", "lr": 0.3, "momentum": 0.5, "lr-scheduler-type": "cosine", "warmup-steps": 1, "lr-decay-steps": 10, "min-lr-ratio": 0.2},
    {"optimizer": "adam", "lr": 0.02, "amsgrad": True, "betas": "0.5,0.8"},
    {"optimizer": "adamw", "lr": 0.02, "amsgrad": True, "weight-decay": 0.2},
    {"optimizer": "lion", "lr": 0.003, "weight-decay": 0.3},
    {"optimizer": "lion", "lr": 0.01, "betas": "0.8,0.9", "weight-decay": 0, "max-grad-norm": 0},
    {"optimizer": "rmsprop", "lr": 0.005},
    {"optimizer": "rmsprop", "lr": 0.003, "centered": True, "momentum": 0.7, "alpha": 0.9, "eps": 1e-3, "weight-decay": 0.1},
    {"optimizer": "rmsprop", "lr": 0.003, "momentum": 0.9},
    {"optimizer": "adagrad", "lr": 0.1, "weight-decay": 0.01},
    {"optimizer": "adadelta", "lr": 3.0, "alpha": 0.8, "weight-decay": 0.01},
    {"optimizer": "adamax", "lr": 0.02, "weight-decay": 0.1},
    {"optimizer": "radam", "lr": 0.02, "weight-decay": 0.05},
    {"optimizer": "radam", "lr": 0.02, "betas": "0.9,0.7"},
    {"optimizer": "adamw", "lr": 0.05, "clip-grad-value": 0.01},
    {"optimizer": "sgd", "lr": 0.5, "momentum": 0.9, "clip-grad-value": 0.02},
    {"optimizer": "adamw", "lr": 0.02, "weight-decay": 0.4, "param-group": ["hidden.*:lr=0.005,weight_decay=0", "out.bias:lr_scale=3,weight_decay=0.2"]},
    {"optimizer": "rmsprop", "lr": 0.005, "momentum": 0.5, "param-group": ["*.weight:lr_scale=0.25", "norm.weight:lr=0.01"], "ema-decay": 0.9},
    {"optimizer": "adamw", "lr": 0.02, "amsgrad": True, "ema-decay": 0.95},
    {"optimizer": "sgd", "lr": 0.3, "ema-decay": 0.8},
    {"optimizer": "adamw", "lr": 0.05, "lr-scheduler-type": "polynomial", "lr-decay-power": 2.5, "warmup-steps": 5, "lr-decay-steps": 40, "min-lr-ratio": 0.1},
    {"optimizer": "adamw", "lr": 0.05, "lr-scheduler-type": "cosine_with_restarts", "lr-cycles": 3, "warmup-steps": 5, "lr-decay-steps": 45, "min-lr-ratio": 0},
    {"optimizer": "adamw", "lr": 0.05, "lr-scheduler-type": "inverse_sqrt", "warmup-steps": 8},
    {"optimizer": "adamw", "lr": 0.05, "lr-scheduler-type": "inverse_sqrt"},
    {"optimizer": "adamw", "lr": 0.05, "lr-scheduler-type": "warmup_stable_decay", "warmup-steps": 5, "lr-decay-steps": 45, "lr-wsd-decay-steps": 15, "min-lr-ratio": 0},
    {"optimizer": "adamw", "lr": 0.05, "lr-scheduler-type": "warmup_stable_decay", "lr-wsd-decay-style": "cosine", "lr-decay-steps": 48, "lr-wsd-decay-steps": 10, "min-lr-ratio": 0},
    {"optimizer": "adamw", "lr": 0.05, "lr-scheduler-type": "warmup_stable_decay", "lr-wsd-decay-style": "minus_sqrt", "lr-decay-steps": 45, "lr-wsd-decay-steps": 20, "min-lr-ratio": 0.2},
    {"optimizer": "adamw", "lr": 0.05, "lr-scheduler-type": "one_cycle", "lr-decay-steps": 50},
    {"optimizer": "sgd", "lr": 0.5, "lr-schedule-file": "10 0.5\n20, 1.0 # the peak\n\n40 0\n"},
    {"optimizer": "muon", "lr": 0.02},
    {"optimizer": "muon", "lr": 0.01, "muon-adjust-lr": "original", "momentum": 0.9, "no-nesterov": True, "weight-decay": 0.3, "weight-decay-params": "all"},
    {"optimizer": "muon", "lr": 0.02, "betas": "0.8,0.99", "param-group": ["square.weight:optimizer=adamw,lr=0.01", "embed.*:lr_scale=0.5", "out.weight:optimizer=muon"],
     "ema-decay": 0.9, "max-grad-norm": 0.5},
    {"optimizer": "adafactor", "lr": 0.02},
    {"optimizer": "adafactor", "lr": 0.1, "beta2-decay": -0.6, "eps": 1e-6, "eps2": 0.01, "update-clip": 1.25, "weight-decay": 0.1, "weight-decay-params": "all", "ema-decay": 0.9},
    {"optimizer": "adafactor", "lr": 0.003, "no-scale-parameter": True, "eps": 1e-15, "weight-decay": 0.1},
    {"optimizer": "adamw8bit", "lr": 0.01},
    {"optimizer": "adam8bit", "lr": 0.01, "betas": "0.8,0.99", "eps": 1e-6, "weight-decay": 0.1, "max-grad-norm": 0.5, "ema-decay": 0.9},
]


def decays(rule, name, parameter):
    if rule.startswith("names:"):
        return any(pattern in name for pattern in rule[6:].split(","))
    return {"rank": parameter.dim() >= 2, "all": True, "none": False}[rule]


def optimizer_of(model, case):
    kind, lr = case["optimizer"], case["lr"]
    decay = case.get("weight-decay", 0.1 if kind in CLIPPED else 0.0)
    groups = [{"params": [p], "lr": lr, "weight_decay": decay if decays(case.get("weight-decay-params", "rank"), n, p) else 0.0, **of_group(case, n)} for n, p in
              model.named_parameters()]
    if kind == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=case.get("momentum", 0.0), nesterov=case.get("nesterov", False))
    if kind == "muon":
        return Together(model, groups, case)
    betas = {"betas": tuple(float(b) for b in case["betas"].split(","))} if "betas" in case else {}
    epsilon = {"eps": case["eps"]} if "eps" in case else {}
    if kind in ("adam", "adamw"):
        return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind](groups, lr=lr, amsgrad=case.get("amsgrad", False), eps=case.get("eps", 1e-8),
                                                                          **(betas or {"betas": (0.9, 0.95)}))
    if kind in ("adam8bit", "adamw8bit"):
        return Adam8bit(groups, lr=lr, decoupled=kind == "adamw8bit", eps=case.get("eps", 1e-8), **(betas or {"betas": (0.9, 0.95)}))
    if "no-scale-parameter" in case:
        return hugging_face.Adafactor(groups, lr=lr, scale_parameter=False, relative_step=False)
    if kind == "adafactor":
        return torch.optim.Adafactor(groups, lr=lr, beta2_decay=case.get("beta2-decay", -0.8), eps=(case.get("eps"), case.get("eps2", 1e-3)), d=case.get("update-clip", 1.0))
    if kind == "lion":
        return Lion(groups, lr=lr, **betas)
    if kind == "rmsprop":
        return torch.optim.RMSprop(groups, lr=lr, alpha=case.get("alpha", 0.99), centered=case.get("centered", False), momentum=case.get("momentum", 0), **epsilon)
    if kind == "adadelta":
        return torch.optim.Adadelta(groups, lr=lr, rho=case.get("alpha", 0.9), **epsilon)
    if kind == "adagrad":
        return torch.optim.Adagrad(groups, lr=lr, **epsilon)
    return {"adamax": torch.optim.Adamax, "radam": torch.optim.RAdam}[kind](groups, lr=lr, **betas, **epsilon)


def of_group(case, name):
    """Learning rate and weight decay by --param-group: the longest pattern decides, a full name
    before all others."""
    found = {}
    for text in case.get("param-group", []):
        patterns, _, options = text.rpartition(":")
        for pattern in patterns.split(","):
            if fnmatch.fnmatchcase(name, pattern):
                found[(pattern == name, len(pattern))] = options
    result = {}
    for option in found[max(found)].split(",") if found else []:
        key, _, value = option.partition("=")
        result["lr" if key == "lr_scale" else key] = value if key == "optimizer" else float(value) * (case["lr"] if key == "lr_scale" else 1)
    return result


class Together(torch.optim.Optimizer):
    """torch.optim.Muon for hidden weights and torch.optim.AdamW for all others, with one list of groups. Muon computes in the type of the parameters instead of
    bf16."""

    def __init__(self, model, groups, case):
        super().__init__(groups, {"lr": case["lr"]})
        hidden = {id(p) for n, p in model.named_parameters() if n in ("wide.weight", "square.weight", "narrow.weight")}
        matrix = lambda group: group.get("optimizer", "muon" if id(group["params"][0]) in hidden else "adamw") == "muon"
        betas = tuple(float(b) for b in case.get("betas", "0.9,0.95").split(","))
        only = lambda some: [{key: value for key, value in group.items() if key in ("params", "lr", "weight_decay")} for group in some]
        self.parts = [torch.optim.Muon(only(g for g in self.param_groups if matrix(g)), momentum=case.get("momentum", 0.95), nesterov="no-nesterov" not in case,
                                       adjust_lr_fn=case.get("muon-adjust-lr", "match_rms_adamw")),
                      torch.optim.AdamW(only(g for g in self.param_groups if not matrix(g)), betas=betas)]

    def step(self, closure=None):
        for part in self.parts:
            part.step()


def orthogonalized(gradient, coefficients, steps, eps):
    """torch.optim._muon._zeropower_via_newtonschulz, without its rounding to bf16."""
    a, b, c = coefficients
    x = gradient.T if gradient.size(0) > gradient.size(1) else gradient
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if gradient.size(0) > gradient.size(1) else x


torch.optim._muon._zeropower_via_newtonschulz = orthogonalized


class Lion(torch.optim.Optimizer):
    """Program 1 of Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023."""

    def __init__(self, parameters, lr, betas=(0.9, 0.99)):
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("momentum", torch.zeros_like(p))
                update = (first * m + (1 - first) * p.grad).sign()
                p.sub_(group["lr"] * (update + group["weight_decay"] * p))
                m.copy_(second * m + (1 - second) * p.grad)


class Adam8bit(torch.optim.Optimizer):
    """Adam of torchao.optim in the type of the parameters: states of large parameters are block-wise codes."""

    def __init__(self, parameters, lr, betas, eps, decoupled):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})
        self.decoupled = decoupled

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                coded = p.numel() >= 4096 and p.numel() % 256 == 0
                state = self.state[p] or self.state[p].update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p)) or self.state[p]
                state["step"] += 1
                gradient = p.grad
                if self.decoupled:
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                else:
                    gradient = gradient + group["weight_decay"] * p
                m, v = state["m"].lerp(gradient, 1 - b1), state["v"].lerp(gradient * gradient, 1 - b2)
                state["m"], state["v"] = (coded_values(m, True), coded_values(v, False)) if coded else (m, v)
                denominator = (v / (1 - b2 ** state["step"])).sqrt() + group["eps"]
                p.sub_(group["lr"] * m / (1 - b1 ** state["step"]) / denominator)


def dynamic_values(signed):
    """The 256 values of block-wise dynamic quantization (create_dynamic_map of bitsandbytes and torchao), in double precision."""
    values = [0.0, 1.0]
    for decade in range(7):
        bounds = np.linspace(0.1, 1, 2 ** (decade + (0 if signed else 1)) + 1)
        means = 10.0 ** (decade - 6) * (bounds[:-1] + bounds[1:]) / 2
        values += [*means, *(-means if signed else [])]
    return torch.tensor(sorted(values), dtype=torch.float64)


def coded_values(x, signed):
    """Numbers after they were stored as codes of blocks of 256 elements."""
    values, blocks = dynamic_values(signed), x.reshape(-1, 256)
    scale = blocks.abs().amax(1, keepdim=True).clip(1e-12)
    codes = torch.bucketize(blocks / scale, (values[:-1] + values[1:]) / 2, right=True)
    return (values[codes] * scale).reshape(x.shape)


def counted_from_one(scheduler):
    scheduler.optimizer.step()  # without gradients: it only avoids a warning
    scheduler.step()
    return scheduler


def hugging_face_scheduler(optimizer, case):
    """Schedules of transformers. Their first factor is that of step 0, which is not used."""
    kind, warmup, total, ratio = case["lr-scheduler-type"], case.get("warmup-steps", 0), case.get("lr-decay-steps", STEPS), case.get("min-lr-ratio", 0.1)
    if kind == "polynomial":
        return hugging_face.get_polynomial_decay_schedule_with_warmup(optimizer, warmup, total, lr_end=ratio * case["lr"], power=case.get("lr-decay-power", 1))
    if kind == "cosine_with_restarts":
        return hugging_face.get_cosine_with_hard_restarts_schedule_with_warmup(optimizer, warmup, total, num_cycles=case["lr-cycles"])
    if kind == "inverse_sqrt":
        return hugging_face.get_inverse_sqrt_schedule(optimizer, warmup)
    style = {"minus_sqrt": "1-sqrt"}.get(case.get("lr-wsd-decay-style", "linear"), case.get("lr-wsd-decay-style", "linear"))
    return hugging_face.get_wsd_schedule(optimizer, warmup, case["lr-wsd-decay-steps"], num_training_steps=total, decay_type=style, min_lr_ratio=ratio)


def table_scheduler(optimizer, text):
    points = [tuple(float(x) for x in line.partition("#")[0].replace(",", " ").split()) for line in text.splitlines()]
    steps, factors = zip(*[p for p in points if p])
    return lr_scheduler.LambdaLR(optimizer, lambda step: float(np.interp(step, steps, factors)))


def scheduler_of(optimizer, case):
    """PyTorch's schedules: linear warm-up to the full rate at step `warmup`, then decay, then the
    final rate."""
    warmup, total, ratio = max(case.get("warmup-steps", 0), 1), case.get("lr-decay-steps", STEPS), case.get("min-lr-ratio", 0.1)
    kind, start = case.get("lr-scheduler-type", "constant"), case.get("warmup-steps", 0)
    if "lr-schedule-file" in case:
        return counted_from_one(table_scheduler(optimizer, case["lr-schedule-file"]))
    if kind == "one_cycle":
        return lr_scheduler.OneCycleLR(optimizer, case["lr"], total_steps=total, cycle_momentum=False)
    if kind not in ("constant", "linear", "cosine"):
        return counted_from_one(hugging_face_scheduler(optimizer, case))
    rise = lr_scheduler.LinearLR(optimizer, 1 / warmup, 1.0, max(warmup - 1, 1)) if warmup > 1 else None
    if kind == "constant":
        return rise or lr_scheduler.ConstantLR(optimizer, 1.0)
    if kind == "linear":
        fall = lr_scheduler.LinearLR(optimizer, 1.0, ratio, total - start)
    else:
        fall = lr_scheduler.CosineAnnealingLR(optimizer, total - start, case["lr"] * ratio)
    if start == 0:  # PyTorch counts from one: the first step is already one step of decay
        return counted_from_one(fall)
    return lr_scheduler.SequentialLR(optimizer, [rise, fall], [warmup - 1]) if rise else fall


def train(case, ids):
    torch.manual_seed(5)
    model = MODELS[MODEL_OF.get(case["optimizer"], "tiny")]().double()
    optimizer = optimizer_of(model, case)
    scheduler = scheduler_of(optimizer, case)
    base = next(i for i, (name, _) in enumerate(model.named_parameters()) if not of_group(case, name))
    limit = case.get("clip-grad-value")
    clip = case.get("max-grad-norm", 1.0 if case["optimizer"] in CLIPPED and limit is None else 0.0)
    average = case.get("ema-decay") and torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(case["ema-decay"]))
    out = {"options": case, "loss": [], "lr": [], "grad_norm": []}
    for step in range(STEPS):
        begin = step * ROWS * LENGTH
        x, y = (torch.from_numpy(ids[begin + k:begin + k + ROWS * LENGTH].astype(np.int64)).view(ROWS, LENGTH) for k in (0, 1))
        optimizer.zero_grad()
        loss = model(x, y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip if clip > 0 else float("inf"))
        if limit is not None:
            torch.nn.utils.clip_grad_value_(model.parameters(), limit)
        out["loss"].append(float(loss.detach()))
        out["grad_norm"].append(float(norm))
        out["lr"].append(optimizer.param_groups[base]["lr"])
        optimizer.step()
        if average:
            average.update_parameters(model)
        if case.get("lr-scheduler-type") == "one_cycle" and step + 1 >= case["lr-decay-steps"]:
            continue
        if not (case.get("lr-scheduler-type") in ("linear", "cosine") and step + 1 >= case["lr-decay-steps"]):  # PyTorch's cosine would rise again
            scheduler.step()
    out["parameters"] = digests(model)
    if average:
        out["averages"] = digests(average.module)
    return out


def digests(model):
    """For each trained parameter: the norm, and a weighted sum that distinguishes elements."""
    return {n: [float(p.detach().norm()), float((p.detach().flatten() * torch.cos(torch.arange(p.numel()).double())).sum())] for n, p in model.named_parameters()}


def main():
    small = os.path.join(here, "small")
    torch.set_default_dtype(torch.float32)
    for name, kind in MODELS.items():
        torch.manual_seed(5)  # the same weights in both precisions
        export(kind(), os.path.join(small, f"mlp-{name}.onnx"), sequence=LENGTH, rows=ROWS, vocabulary=VOCABULARY, external_data=False)
    rng = np.random.default_rng(9)
    ids = rng.integers(0, VOCABULARY, STEPS * ROWS * LENGTH + 1).astype(np.uint16)
    ids.tofile(os.path.join(small, "optimizers.tokens.bin"))
    reference = {"torch": torch.__version__.split("+")[0], "rows": ROWS, "sequence": LENGTH, "steps": STEPS, "cases": [train(case, ids) for case in CASES]}
    with open(os.path.join(small, "optimizers.reference.json"), "w") as f:
        json.dump(reference, f, indent=1)


if __name__ == "__main__":
    main()
