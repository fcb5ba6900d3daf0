"""Make models/small/mlp-tiny.onnx and models/small/optimizers.reference.json: ten steps of torch.optim in double precision for every optimizer, decay
rule and schedule, which test/e2e/optimizers.py compares with. Run again only to change them:

    python models/make_optimizers.py
"""
import json
import os
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import lr_scheduler

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
from export import export

ROWS, LENGTH, STEPS, VOCABULARY = 4, 6, 10, 16


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
]


def decays(rule, name, parameter):
    if rule.startswith("names:"):
        return any(pattern in name for pattern in rule[6:].split(","))
    return {"rank": parameter.dim() >= 2, "all": True, "none": False}[rule]


def optimizer_of(model, case):
    kind, lr = case["optimizer"], case["lr"]
    decay = case.get("weight-decay", 0.1 if kind == "adamw" else 0.0)
    groups = [{"params": [p], "weight_decay": decay if decays(case.get("weight-decay-params", "rank"), n, p) else 0.0} for n, p in model.named_parameters()]
    if kind == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=case.get("momentum", 0.0), nesterov=case.get("nesterov", False))
    betas = tuple(float(b) for b in case.get("betas", "0.9,0.95").split(","))
    return (torch.optim.Adam if kind == "adam" else torch.optim.AdamW)(groups, lr=lr, betas=betas, eps=case.get("eps", 1e-8))


def scheduler_of(optimizer, case):
    """PyTorch's schedules: linear warm-up to the full rate at step `warmup`, then decay, then the
    final rate."""
    warmup, total, ratio = max(case.get("warmup-steps", 0), 1), case.get("lr-decay-steps", STEPS), case.get("min-lr-ratio", 0.1)
    kind, start = case.get("lr-scheduler-type", "constant"), case.get("warmup-steps", 0)
    rise = lr_scheduler.LinearLR(optimizer, 1 / warmup, 1.0, max(warmup - 1, 1)) if warmup > 1 else None
    if kind == "constant":
        return rise or lr_scheduler.ConstantLR(optimizer, 1.0)
    if kind == "linear":
        fall = lr_scheduler.LinearLR(optimizer, 1.0, ratio, total - start)
    else:
        fall = lr_scheduler.CosineAnnealingLR(optimizer, total - start, case["lr"] * ratio)
    if start == 0:  # PyTorch counts from one: the first step is already one step of decay
        optimizer.step()
        fall.step()
        return fall
    return lr_scheduler.SequentialLR(optimizer, [rise, fall], [warmup - 1]) if rise else fall


def train(case, ids):
    torch.manual_seed(5)
    model = Tiny().double()
    optimizer = optimizer_of(model, case)
    scheduler = scheduler_of(optimizer, case)
    clip = case.get("max-grad-norm", 1.0 if case["optimizer"] == "adamw" else 0.0)
    out = {"options": case, "loss": [], "lr": [], "grad_norm": []}
    for step in range(STEPS):
        begin = step * ROWS * LENGTH
        x, y = (torch.from_numpy(ids[begin + k:begin + k + ROWS * LENGTH].astype(np.int64)).view(ROWS, LENGTH) for k in (0, 1))
        optimizer.zero_grad()
        loss = model(x, y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip if clip > 0 else float("inf"))
        out["loss"].append(float(loss.detach()))
        out["grad_norm"].append(float(norm))
        out["lr"].append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if not (case.get("lr-scheduler-type") in ("linear", "cosine") and step + 1 >= case["lr-decay-steps"]):  # PyTorch's cosine would rise again
            scheduler.step()
    # For each trained parameter: the norm, and a weighted sum that distinguishes elements.
    out["parameters"] = {n: [float(p.detach().norm()), float((p.detach().flatten() * torch.cos(torch.arange(p.numel()).double())).sum())]
                         for n, p in model.named_parameters()}
    return out


def main():
    small = os.path.join(here, "small")
    torch.manual_seed(5)
    model = Tiny()
    # The same weights in both precisions.
    torch.set_default_dtype(torch.float32)
    export(model, os.path.join(small, "mlp-tiny.onnx"), sequence=LENGTH, rows=ROWS, vocabulary=VOCABULARY, external_data=False)
    rng = np.random.default_rng(9)
    ids = rng.integers(0, VOCABULARY, STEPS * ROWS * LENGTH + 1).astype(np.uint16)
    ids.tofile(os.path.join(small, "mlp-tiny.tokens.bin"))
    reference = {"torch": torch.__version__.split("+")[0], "rows": ROWS, "sequence": LENGTH, "steps": STEPS, "cases": [train(case, ids) for case in CASES]}
    with open(os.path.join(small, "optimizers.reference.json"), "w") as f:
        json.dump(reference, f, indent=1)


if __name__ == "__main__":
    main()
