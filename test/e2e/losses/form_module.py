"""A form of a loss on a small PyTorch module: its inputs, its export, and PyTorch's results in double precision. Needs
PyTorch.

The text of a form is Python: statements separated by semicolons. The last one is the loss. It may use these names:
    l: logits (B, T, C) of x       y: labels (B, T), some -100       w: positive weights
                                   (B, T)       c: label of a sample (B,)
    p: embeddings (B, C) of x      q: probabilities (B, T, C)        m: a mask of 0 and 1
                                   (B, T)      at: a position (B,)
    v: embeddings (B, C) of u      r: targets (B, T)                 sw: positive weights
                                   (B,)        x, u: inputs (B, T, 4)
and s, the module, for its parameters. A form of the section "forward" changes x before the model reads it; its loss is
a cross-entropy.
"""
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from losses.forms import MADE, names_in
from losses.judge import Expected, rate_for

torch.set_default_dtype(torch.float64)  # also for tensors that a module creates at run time
POSITIONS, CLASSES, WIDTH = 3, 5, 4


def flat(l, y, **more):
    return F.cross_entropy(l.flatten(0, 1), y.flatten(), **more)


def total(l, y, **more):
    return flat(l, y, reduction="sum", **more)


def each(l, y, **more):
    return F.cross_entropy(l.transpose(1, 2), y, reduction="none", **more)


def valid(y):
    return (y != -100).sum()


def logp(l):
    return F.log_softmax(l, -1)


SCOPE = {"torch": torch, "F": F, "math": math, "T": POSITIONS, "C": CLASSES, "flat": flat, "total": total, "each": each, "valid": valid, "logp": logp,
         "square": lambda l, q: ((l - q) ** 2).sum(), "unit": lambda a: F.normalize(a, dim=-1)}


class Body(nn.Module):
    """Three layers, so that a plan can split it into stages."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(WIDTH, 6), nn.Linear(6, 6), nn.Linear(6, CLASSES)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.head(h + torch.tanh(self.second(h)))


class FormModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.other, self.frozen = Body(), nn.Linear(WIDTH, CLASSES), nn.Linear(WIDTH, CLASSES).requires_grad_(False)
        self.a, self.b, self.k = nn.Parameter(torch.tensor(0.3)), nn.Parameter(torch.tensor(-0.2)), nn.Parameter(torch.linspace(-0.5, 0.5, CLASSES))
        self.register_buffer("cw", torch.linspace(0.5, 2, CLASSES))


def module_of(form):
    """The module with the form as its forward; `inputs` are the names of its arguments."""
    torch.manual_seed(0)
    module = FormModule()
    used = names_in(form)
    module.inputs = sorted({MADE.get(name, name) for name in used} - {"s"})
    lines = [line.strip() for line in form.text.split(";")]
    last = lines.pop()
    if form.section == "forward":
        lines, last = [*lines, f"x = {last}", "l = s.body(x)"], "flat(l, y)"
    else:
        made = {"l": "l = s.body(x)", "p": "p = s.body(x).mean(1)", "v": "v = s.other(u.mean(1))"}
        lines = [made[name] for name in MADE if name in used] + lines
    code = f"def forward(s, {', '.join(module.inputs)}):\n" + "".join(f"    {line}\n" for line in [*lines, f"return {last}"])
    scope = dict(SCOPE)
    exec(code, scope)
    module.__class__ = type(FormModule.__name__, (FormModule,), {"forward": scope["forward"]})
    return module


def data_of(B, seed=0):
    """Inputs of B samples. The number of ignored labels differs between samples, and one sample has no labels."""
    g = torch.Generator().manual_seed(1000 * B + seed)

    def normal(*shape):
        return torch.randn(*shape, generator=g)

    y = torch.randint(0, CLASSES, (B, POSITIONS), generator=g)
    y[torch.rand(B, POSITIONS, generator=g) < 0.3] = -100
    y[B // 2] = -100
    y[0, 0], y[-1, -1] = 1, 2
    m = (torch.rand(B, POSITIONS, generator=g) < 0.6).double()
    m[0, 0] = 1
    x, u, q = normal(B, POSITIONS, WIDTH), normal(B, POSITIONS, WIDTH), torch.softmax(normal(B, POSITIONS, CLASSES), -1)
    w, sw, r = normal(B, POSITIONS).abs() + 0.1, normal(B).abs() + 0.1, normal(B, POSITIONS)
    c, at = torch.randint(0, CLASSES, (B,), generator=g), torch.randint(0, POSITIONS, (B,), generator=g)
    return {"x": x, "u": u, "y": y, "q": q, "w": w, "m": m, "sw": sw, "c": c, "r": r, "at": at}


def reference(form, B, steps):
    """PyTorch's results for `steps` steps of B samples; None for a loss with a value per sample."""
    module = module_of(form)
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    batches, losses, gradients = [data_of(B, seed) for seed in range(steps)], [], {}
    for batch in batches:
        module.zero_grad()
        loss = module(*[batch[name] for name in module.inputs])
        if loss.dim():
            return None
        loss.backward()
        losses.append(float(loss.detach()))
        gradients = gradients or {name: (torch.zeros_like(p) if p.grad is None else p.grad).numpy().copy() for name, p in trained.items()}
        rate = rate_for(gradients)
        with torch.no_grad():
            for p in trained.values():
                p -= 0 if p.grad is None else rate * p.grad
    inputs = {name: np.concatenate([batch[name].numpy() for batch in batches]) for name in module.inputs}
    return Expected(B, inputs, rate, losses, gradients, {name: p.detach().numpy().copy() for name, p in trained.items()})


def export(form, path):
    """Exports the file as a user does. The example has 3 samples, a number that no step has."""
    import zorse

    module, example = module_of(form), data_of(3)
    zorse.export(module, path, inputs={name: example[name] for name in module.inputs}, external_data=False)
