"""Make models/small/batch-norm: a module with batch norms, data, and steps of PyTorch in double precision with statistics of the whole batch, as on one
device, and of each half of it, as with data parallelism on two devices. test/e2e/batch_norm.py compares with it. Run again only to change it:

    python models/make_batch_norm.py
"""
import json
import os
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
from export import export
from make_breadth import Frozen

SAMPLES, BATCH, STEPS = 24, 8, 6


class Normalised(nn.Module):
    """Batch norms over images and over vectors with different momenta, and one with frozen
    statistics."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.second, self.other = nn.Conv2d(6, 8, 3, stride=2, bias=False), nn.BatchNorm2d(8, momentum=0.3, eps=1e-3)
        self.frozen = Frozen(8)
        self.hidden, self.last = nn.Linear(8, 10), nn.BatchNorm1d(10)
        self.head = nn.Linear(10, 4)
        for m in (self.norm, self.other, self.frozen, self.last):
            nn.init.uniform_(m.weight, 0.5, 1.5), nn.init.uniform_(m.bias, -0.5, 0.5), m.running_mean.uniform_(-0.5, 0.5), m.running_var.uniform_(0.5, 2)

    def forward(self, pixels, label):
        x = F.relu(self.norm(self.first(pixels)))
        x = self.frozen(F.relu(self.other(self.second(x)))).mean((2, 3))
        return F.cross_entropy(self.head(F.relu(self.last(self.hidden(x)))), label)


def train(model, inputs, group):
    """AdamW with the defaults of zorse-compile and --lr 1e-2. Statistics of `group` samples;
    running statistics move towards the mean over groups."""
    model = model.double().train()
    decay, plain = [p for p in model.parameters() if p.dim() >= 2], [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
    running = {name: b for name, b in model.named_buffers() if name.endswith(("mean", "var")) and not name.startswith("frozen")}
    losses = []
    for step in range(STEPS):
        begin = step * BATCH % SAMPLES
        before, after, total = {name: b.clone() for name, b in running.items()}, {name: torch.zeros_like(b) for name, b in running.items()}, 0.0
        optimizer.zero_grad()
        for first in range(begin, begin + BATCH, group):
            for name, b in running.items():
                b.copy_(before[name])
            loss = model(*[t[first:first + group].double() if t.is_floating_point() else t[first:first + group] for t in inputs.values()]) * group / BATCH
            loss.backward()
            total += float(loss.detach())
            for name, b in running.items():
                after[name] += b * group / BATCH
        for name, b in running.items():
            b.copy_(after[name])
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(total)
    model.eval()
    with torch.no_grad():
        evaluated = float(model(*[t.double() if t.is_floating_point() else t for t in inputs.values()]))
    return {"loss": losses, "evaluation": evaluated, "running": {name: b.tolist() for name, b in running.items()}}


def main():
    folder = os.path.join(here, "small", "batch-norm")
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(11)
    inputs = {"pixels": torch.randn(SAMPLES, 2, 9, 8) * 2 + 1, "label": torch.randint(0, 4, (SAMPLES,))}

    def made():
        torch.manual_seed(12)
        return Normalised()

    export(made(), os.path.join(folder, "model.onnx"), inputs={k: t[:2] for k, t in inputs.items()}, external_data=False)
    for key, t in inputs.items():
        np.save(os.path.join(folder, key + ".npy"), t.numpy().astype(np.float32 if t.is_floating_point() else np.int32))
    reference = {"torch": torch.__version__.split("+")[0], "batch": BATCH, "steps": STEPS, "groups": {group: train(made(), inputs, group) for group in (BATCH, BATCH // 2, 2)}}
    with open(os.path.join(folder, "reference.json"), "w") as f:
        json.dump(reference, f, indent=1)


if __name__ == "__main__":
    main()
