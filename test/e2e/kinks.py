"""Gradients at points where functions are not differentiable: clamps at their bounds, leaky activations and norms at 0,
maxima of equal operands.

    kinks.py [NAME...]

There is a module per function. It reads a table whose rows are the points. The test compares two gradients with
PyTorch's for each exporter, in f64: the gradients that the export check computes from the file, and those of a compiled
step. Needs PyTorch (tools/python-env.sh); exit code 77 without it.
"""
import logging
import os
import sys
import tempfile
import warnings

import numpy as np

import harness as z
from python_package_torch import ensure_torch

sys.path.insert(0, os.path.join(z.ROOT, "python"))
LIMIT = 1e-6  # exporters write numbers in f32
POINTS = [-6, -5, -4, -3, -2, -1.5, -1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 5, 6, 7]
ROOTS = {"cosine_similarity"}  # TorchScript's exporter writes it as roots of sums; their gradient at 0 is infinite in PyTorch, too
CLUSTER = "name: one\nnodes:\n  - name: n\n    devices:\n      - {name: c, kind: cpu, threads: 1, flops_per_second: 10 GFLOP/s, memory: 1 GiB}\n"


def functions():
    import torch
    import torch.nn.functional as F

    return {
        "relu": F.relu, "relu6": F.relu6, "prelu": None, "leaky_relu": lambda x: F.leaky_relu(x, 0.25), "steep_leaky_relu": lambda x: F.leaky_relu(x, 1.5), "elu": F.elu, "celu": lambda x: F.celu(x, 0.5),
        "selu": F.selu, "hardtanh": F.hardtanh, "hardsigmoid": F.hardsigmoid, "hardswish": F.hardswish, "softshrink": F.softshrink, "hardshrink": F.hardshrink, "softplus": F.softplus, "logsigmoid": F.logsigmoid,
        "threshold": lambda x: F.threshold(x, 0.5, 0.25), "abs": torch.abs, "clamp": lambda x: x.clamp(-0.75, 0.75), "clamp_min_0": lambda x: x.clamp(min=0), "clamp_min": lambda x: x.clamp(min=0.5),
        "clamp_max": lambda x: x.clamp(max=1), "twice_clamped": lambda x: x.clamp(-1, 1).clamp(-1, 2), "maximum_0": lambda x: torch.maximum(x, torch.zeros_like(x)), "minimum_1": lambda x: torch.minimum(x, torch.ones_like(x)),
        "maximum": lambda x: torch.maximum(x, -x), "minimum": lambda x: torch.minimum(x, x * x), "amax": lambda x: x.round().amax(-1, keepdim=True) + x, "sign": lambda x: x * torch.sign(x),
        "where_greater": lambda x: torch.where(x > 0, x, 0.5 * x), "where_at_least": lambda x: torch.where(x >= 0, x, 0.5 * x), "relu_squared": lambda x: F.relu(x) ** 2,
        "norm": lambda x: x + x.norm(dim=-1, keepdim=True), "normalize": lambda x: F.normalize(x, dim=-1), "cosine_similarity": lambda x: x + F.cosine_similarity(x, 2 * x, dim=-1)[..., None],
        "distance": lambda x: x + (x[..., :2] - x[..., 2:]).norm(dim=-1, keepdim=True), "prod": lambda x: x + x.prod(-1, keepdim=True) / 1024, "max_pool": lambda x: x + F.max_pool1d(x.transpose(1, 2).round(), 3, 1, 1).transpose(1, 2),
        "smooth_l1": lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), reduction="none"), "huber": lambda x: F.huber_loss(x, torch.zeros_like(x), reduction="none"),
    }


def made(function):
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Kinked(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(len(POINTS), 4), nn.Linear(4, 3)
            self.slope = nn.PReLU() if function is None else nn.Identity()
            with torch.no_grad():
                self.table.weight.copy_(torch.tensor(POINTS)[:, None].expand(-1, 4))

        def forward(self, input_ids, labels):
            x = self.table(input_ids)
            return F.cross_entropy(self.head(self.slope(x) if function is None else function(x)).flatten(0, 1), labels.flatten())

    torch.manual_seed(1)
    return Kinked()


def compiled_gradients(folder, model, inputs):
    """The gradients of one step of the compiled file, by parameter name."""
    for name, tensor in inputs.items():
        np.save(os.path.join(folder, name + ".npy"), tensor.numpy())
    bundle, cluster, gradients = (os.path.join(folder, name) for name in ("k.zorse", "one.yaml", "k.gradients"))
    with open(cluster, "w") as f:
        f.write(CLUSTER)
    z.call("zorse-compile", model, "--cluster", cluster, "--global-batch-size", len(inputs["labels"]), "--precision", "f64", "--optimizer", "sgd", "--lr", 0, "--max-grad-norm", 0, "--quiet", "-o", bundle)
    z.run(bundle, ",".join(f"{name}={os.path.join(folder, name)}.npy" for name in inputs), 1, gradients=gradients)
    return z.safetensors(gradients)


def apart(module, folder, dynamo, inputs):
    """(file, program): the largest differences of gradients from PyTorch's, relative to the largest gradient; None if
    PyTorch cannot export the module."""
    import torch
    import zorse
    from zorse._file_step import File, by_parameter, far, largest
    from zorse._module_step import training_step

    path = os.path.join(folder, "k.onnx")
    try:
        zorse.export(module, path, inputs=inputs, dynamo=dynamo, trust=True)
    except zorse.ZorseError as error:
        if "PyTorch cannot export" in str(error):
            return None
        raise
    step, file = training_step(module, inputs.values(), True), File(path, True)
    found, wanted = by_parameter(file, file.step(inputs)[1], step.gradients)
    scale = max(largest(g) for g in wanted.values())
    both = found, compiled_gradients(folder, path, inputs)  # without unused parameters
    return tuple(max(float(far(torch.as_tensor(of[n]) if n in of else torch.zeros_like(g), g, scale)) for n, g in wanted.items()) for of in both)


def main():
    ensure_torch()
    import torch

    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    results, every = [], functions()
    ids = torch.arange(len(POINTS)).reshape(2, -1)
    inputs = {"input_ids": ids, "labels": ids % 3}
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or every:
            for dynamo in (True,) if name in ROOTS else (True, False):
                found = apart(made(every[name]), folder, dynamo, inputs)
                label = f"{name}, {'dynamo' if dynamo else 'TorchScript'}"
                if found is None:
                    print(f"      {label}: PyTorch does not export it", flush=True)
                    continue
                for what, off in zip(("file", "program"), found):
                    results.append(z.check(f"{label}: {what}", off, LIMIT))
    z.finish(results, "gradients at kinks are PyTorch's")


if __name__ == "__main__":
    main()
