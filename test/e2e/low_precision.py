"""Compares bf16 training with PyTorch's two conventions (references: models/make_low_precision.py), and with itself.

    low_precision.py [--quick]     --quick: GPT only

--fp32-residual-connection corresponds to torch.autocast with f32 modules; training without it corresponds to a bf16 module with f32 master
weights.

PyTorch differs from itself if a batch is split into micro-batches or its rows are permuted: the maximum mean difference
of the losses of 200 steps is its band. Limits:

- Losses: within two bands of PyTorch's, and at most 1.2 times as far from the f32 losses as PyTorch's.
- First-step gradients: the errors relative to f64 are on average (geometric mean of the ratios of the parameters) not
  above PyTorch's of the same convention, and none is above 1.25 times. If both round at the same places, each still has
  different errors.

Other plans in bf16 must stay in the band, too. plan_invariance.py shows that they compute the same in f64:bf16, where
the order of sums does not matter.
"""
import json
import os
import sys
import tempfile

import numpy as np

import harness as z

HABITS = {"f32": "autocast", "compute": "module"}
PLANS = {"two-stages": (["a", "b"], [(0, 4, 0, 4, "a"), (0, 4, 4, 8, "a"), (4, 8, 0, 4, "b"), (4, 8, 4, 8, "b")]),
         "shares-5-2-1": (["a", "b", "c"], [(0, 8, 0, 5, "a"), (0, 8, 5, 7, "b"), (0, 8, 7, 8, "c")])}


def trained(folder, name, residual, plan_name=None):
    base = os.path.join(z.SMALL, name)
    tag = os.path.join(folder, f"{name}-{residual}-{plan_name}")
    devices, cells = PLANS[plan_name] if plan_name else (["a"], None)
    plan = z.plan(folder, os.path.basename(tag), 8, devices, cells) if cells else None
    z.compile(base + ".onnx", tag + ".zorse", z.cluster(folder, devices), 8, 32, plan, z.ADAMW, "bf16", extra=("--fp32-residual-connection",) if residual == "f32" else ())
    metrics = z.run(tag + ".zorse", base + ".bf16.tokens.bin", 200, gradients=tag + ".g")
    return np.array([m["loss"] for m in metrics]), z.safetensors(tag + ".g")


def apart(a, b):
    return float(np.abs(np.array(a) - np.array(b)).mean())


def main():
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("gpt",) if "--quick" in sys.argv else ("gpt", "llama"):
            base = os.path.join(z.SMALL, name)
            with open(base + ".bf16.reference.json") as f:
                reference = json.load(f)
            exact = z.safetensors(base + ".gradients.safetensors")  # of f32: within 1e-6 of f64
            f32 = reference["loss"]["f32"]
            for residual, habit in HABITS.items():
                theirs = reference["loss"][habit]
                band = max(apart(theirs["whole"], theirs[variant]) for variant in theirs if variant != "whole")
                loss, gradients = trained(folder, name, residual)
                label = f"{name}, residual {residual} against {habit}"
                results.append(z.check(f"{label}: loss over 200 steps", apart(loss, theirs["whole"]), 2 * band))
                results.append(z.check(f"{label}: loss from that in f32", apart(loss, f32), 1.2 * apart(theirs["whole"], f32)))
                ratios = {k: float(np.linalg.norm(gradients[k] - exact[k]) / np.linalg.norm(exact[k])) / reference["gradient_error"][habit][k] for k in gradients}
                results.append(z.check(f"{label}: error of first-step gradients over PyTorch's, mean", float(np.exp(np.mean(np.log(list(ratios.values()))))), 1.0))
                worst = max(ratios, key=ratios.get)
                results.append(z.check(f"{label}: error of first-step gradients over PyTorch's, worst '{worst}'", ratios[worst], 1.25))
                for plan in PLANS if residual == "compute" else ():
                    results.append(z.check(f"{label}, {plan}: loss from one device's", apart(trained(folder, name, residual, plan)[0], loss), 2 * band))
    z.finish(results)


if __name__ == "__main__":
    main()
