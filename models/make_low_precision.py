"""Make PyTorch's references in bf16 for the small models (models/make_small.py). Run again only to change them:

    python models/make_low_precision.py

For each model: NAME.bf16.tokens.bin (token ids of 200 steps, which begin with those of NAME.tokens.bin) and NAME.bf16.reference.json: losses of 200 steps
in f32, under torch.autocast, and as a bf16 module with f32 master weights; the last two several times, with one, two and four micro-batches and
another order of samples, to measure PyTorch's own variation; and the relative error of every parameter's gradient in the first step against f64.
"""
import copy
import json
import os
import sys

import numpy as np
import torch

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
import make_small as small
from modules.gpt import GPT, GPTConfig, initialise
from modules.llama import Llama, LlamaConfig

STEPS = 200
VARIANTS = {"whole": (1, False), "halves": (2, False), "quarters": (4, False), "permuted": (1, True)}


def batches(ids, step, shifted_in_graph):
    base, count = step * small.ROWS * small.LENGTH, small.ROWS * small.LENGTH
    x = torch.from_numpy(ids[base:base + count].astype(np.int64)).view(small.ROWS, small.LENGTH)
    return x, x.clone() if shifted_in_graph else torch.from_numpy(ids[base + 1:base + count + 1].astype(np.int64)).view(small.ROWS, small.LENGTH)


def gradients_of(model, kind, x, y, pieces):
    """The loss, with gradients accumulated over micro-batches in `grad` of the f32 master weights
    (all samples have equally many labels)."""
    masters = dict(model.named_parameters())
    worker = model if kind != "module" else copy.deepcopy(model).to(torch.bfloat16)
    total, sums = 0.0, {}
    for part_x, part_y in zip(x.chunk(pieces), y.chunk(pieces)):
        worker.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
            loss = worker(part_x, part_y) / pieces
        loss.backward()
        total += float(loss.detach())
        for name, parameter in worker.named_parameters():
            sums[name] = sums.get(name, 0) + parameter.grad.to(next(iter(masters.values())).dtype)
    for name, parameter in masters.items():
        parameter.grad = sums[name].clone()
    return total


def train(model, kind, ids, shifted_in_graph, pieces, permuted):
    model = copy.deepcopy(model)
    model.train()
    s = small.SETTINGS
    optimizer = torch.optim.AdamW([{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": s["weight_decay"]},
                                   {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}],
                                  lr=s["lr"], betas=tuple(s["betas"]), eps=s["eps"])
    losses = []
    for step in range(STEPS):
        x, y = batches(ids, step, shifted_in_graph)
        if permuted:
            order = torch.from_numpy(np.random.default_rng(step).permutation(small.ROWS))
            x, y = x[order], y[order]
        for group in optimizer.param_groups:
            group["lr"] = s["lr"] * min(1.0, (step + 1) / s["warmup"])
        losses.append(gradients_of(model, kind, x, y, pieces))
        torch.nn.utils.clip_grad_norm_(model.parameters(), s["clip"])
        optimizer.step()
    return losses


def gradient_errors(model, kind, ids, shifted_in_graph):
    """|g - g64| / |g64| in the first step, by parameter."""
    x, y = batches(ids, 0, shifted_in_graph)
    exact, rough = copy.deepcopy(model).double(), copy.deepcopy(model)
    gradients_of(exact, "f64", x, y, 1)
    gradients_of(rough, kind, x, y, 1)
    pairs = zip(exact.named_parameters(remove_duplicate=False), rough.named_parameters(remove_duplicate=False))
    return {name: float((b.grad.double() - a.grad).norm() / a.grad.norm()) for (name, a), (_, b) in pairs}


def make(name, model, shifted_in_graph, seed):
    folder = os.path.join(here, "small")
    small.STEPS = STEPS
    ids = small.tokens(256, seed)
    before = np.fromfile(os.path.join(folder, name + ".tokens.bin"), dtype=np.uint16)
    assert (ids[:len(before)] == before).all(), "the first steps are those of make_small.py"
    ids.tofile(os.path.join(folder, name + ".bf16.tokens.bin"))
    out = {"settings": small.SETTINGS, "torch": torch.__version__, "loss": {"f32": train(model, "f32", ids, shifted_in_graph, 1, False)}, "gradient_error": {}}
    for kind in ("autocast", "module"):
        out["loss"][kind] = {variant: train(model, kind, ids, shifted_in_graph, *how) for variant, how in VARIANTS.items()}
        out["gradient_error"][kind] = gradient_errors(model, kind, ids, shifted_in_graph)
    with open(os.path.join(folder, name + ".bf16.reference.json"), "w") as f:
        json.dump(out, f)
    f32 = np.array(out["loss"]["f32"])
    for kind in ("autocast", "module"):
        runs = [np.array(v) for v in out["loss"][kind].values()]
        print(name, kind, "from f32", np.abs(runs[0] - f32).mean(), "from itself", max(np.abs(r - runs[0]).mean() for r in runs[1:]), flush=True)


def attention_in_one_type(inner=torch.nn.functional.scaled_dot_product_attention):
    """A bf16 module with f32 angles rotates to f32; models for this use convert back, as
    transformers' Llama does."""
    return lambda q, k, v, **options: inner(q.to(v.dtype), k.to(v.dtype), v, **options)


def main():
    torch.nn.functional.scaled_dot_product_attention = attention_in_one_type()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if "--llama" not in sys.argv:
        make("gpt", initialise(GPT(GPTConfig()), seed=1, distinct=True), False, 11)
    make("llama", initialise(Llama(LlamaConfig()), seed=2, distinct=True), True, 12)


if __name__ == "__main__":
    main()
