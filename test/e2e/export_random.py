"""Random modules through zorse.export: each file is equivalent to the module, at other numbers of samples, too, or the
export refuses it by name (exit code 77 without PyTorch).

    export_random.py [--count 400] [--seed N] [--only I]
                                                              the seed is printed; --only: only the module with this
                                                              number

Exported files are compared once more: loss and all gradients at two numbers of samples and on other data, and, without
dropout, the loss by ONNX's reference evaluator.
"""
import argparse
import collections
import os
import random
import sys
import tempfile
import time
import warnings

import harness as z
from python_package_torch import ensure_torch

os.environ["ZORSE_BIN"] = z.BIN
sys.path.insert(0, os.path.join(z.ROOT, "python"))
WIDTH, CLASSES, LENGTH = 8, 12, 5
# Features that an export may refuse: files cannot represent them, or an exporter loses them. Anything else must be
# exported.
PLANTED = {"spectral_norm", "noise", "hook", "tensor_hook", "detach", "no_grad", "moving_buffer", "by_len", "by_tensor", "by_int", "min", "distilled", "scaled", "by_root"}


def pieces():
    """By name: (choose, make, apply). make(module, i) adds what block i needs, apply(module, i, x) computes it; x:
    [samples, LENGTH, WIDTH]."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    def part(build, call=lambda m, x: m(x)):
        return lambda s, i: setattr(s, f"p{i}", build()), lambda s, i, x: call(getattr(s, f"p{i}"), x)

    def free(function):
        return lambda s, i: None, lambda s, i, x: function(s, x)

    def across(build):
        return part(build, lambda m, x: m(x.transpose(1, 2)).transpose(1, 2))

    def frozen():
        return nn.Linear(WIDTH, WIDTH).requires_grad_(False)

    def hooked():
        layer = nn.Linear(WIDTH, WIDTH)
        layer.register_full_backward_hook(lambda m, gi, go: (gi[0] * 0.5,))
        return layer

    def forward_hooked():
        layer = nn.Linear(WIDTH, WIDTH)
        layer.register_forward_hook(lambda m, i, o: torch.tanh(o))
        return layer

    def on_gradient(s, x):
        if x.requires_grad:
            x.register_hook(lambda g: g * 1.5)
        return x * 1.0

    def counted(function):
        return lambda s, i: s.register_buffer(f"b{i}", torch.randn(WIDTH)), lambda s, i, x: function(getattr(s, f"b{i}"), x)

    def attend(p):
        return lambda s, x: F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], dropout_p=p if s.training else 0.0, is_causal=True)[:, 0]

    def moved(b, x):
        b.mul_(0.9).add_(0.1 * x.detach().mean((0, 1)))
        return x + b

    class DropPath(nn.Module):
        def forward(self, x):
            return x * x.new_empty((x.shape[0], 1, 1)).bernoulli_(0.8) / 0.8 if self.training else x

    def by_floor(s, x):
        return x.div(0.8) * (0.8 + torch.rand((x.shape[0], 1, 1), dtype=x.dtype)).floor_() if s.training else x

    return {
        "linear": part(lambda: nn.Linear(WIDTH, WIDTH)), "mlp": part(lambda: nn.Sequential(nn.Linear(WIDTH, 12), nn.GELU(), nn.Linear(12, WIDTH)), lambda m, x: x + m(x)),
        "frozen": part(frozen), "layer_norm": part(lambda: nn.LayerNorm(WIDTH)), "rms_norm": part(lambda: nn.RMSNorm(WIDTH)), "batch_norm": across(lambda: nn.BatchNorm1d(WIDTH)),
        "group_norm": across(lambda: nn.GroupNorm(2, WIDTH)), "instance_norm": across(lambda: nn.InstanceNorm1d(WIDTH)), "convolution": across(lambda: nn.Conv1d(WIDTH, WIDTH, 3, padding=1)),
        "weight_norm": part(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))), "spectral_norm": part(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH))),
        "old_weight_norm": part(lambda: nn.utils.weight_norm(nn.Linear(WIDTH, WIDTH))), "prelu": part(lambda: nn.PReLU()), "dropout": part(lambda: nn.Dropout(0.2)), "drop_path": part(DropPath), "drop_path_by_floor": free(by_floor), "dropout1d": part(lambda: nn.Dropout1d(0.2)),
        "functional_dropout": free(lambda s, x: F.dropout(x, 0.25, s.training)), "attention": free(attend(0.0)), "attention_dropout": free(attend(0.2)),
        "noise": free(lambda s, x: x + 0.1 * torch.randn_like(x)), "hook": part(hooked), "forward_hook": part(forward_hooked), "tensor_hook": free(on_gradient),
        "half": free(lambda s, x: x.half().to(x.dtype)), "bf16": free(lambda s, x: torch.tanh(x.bfloat16()).to(x.dtype)), "float": free(lambda s, x: x.float().sin().to(x.dtype)),
        "detach": free(lambda s, x: x * torch.sigmoid(x).detach()), "no_grad": free(lambda s, x: x * torch.no_grad()(torch.sigmoid)(x)),
        "compared": free(lambda s, x: torch.where(torch.no_grad()(torch.tanh)(x) > 0.1, x, 0.5 * x)), "branch": free(lambda s, x: x + x.cos() if s.training else x),
        "constant_buffer": counted(lambda b, x: x + b), "moving_buffer": counted(moved), "scaled": free(lambda s, x: x / x.shape[0] ** 0.5), "by_len": free(lambda s, x: x / len(x)),
        "by_tensor": free(lambda s, x: x * torch.as_tensor(float(x.shape[0]) ** -0.5)), "positions": free(lambda s, x: x + torch.arange(x.shape[1])[:, None] / x.shape[1]),
        "checkpoint": free(lambda s, x: torch.utils.checkpoint.checkpoint(torch.tanh, x, use_reentrant=False)), "mean_of_batch": free(lambda s, x: x - x.mean((0, 1))),
        "clamp": free(lambda s, x: x.clamp(-0.8, 0.8)), "cumsum": free(lambda s, x: x.cumsum(1) / 3), "maximum": free(lambda s, x: x - x.amax(-1, keepdim=True)),
        "tied": (lambda s, i: None, lambda s, i, x: x @ s.table.weight[:WIDTH]), "gate": (lambda s, i: setattr(s, f"g{i}", nn.Parameter(torch.rand(()))), lambda s, i, x: x * getattr(s, f"g{i}")),
    }


def losses():
    import torch
    import torch.nn.functional as F

    def summed(l, y):
        return F.cross_entropy(l.flatten(0, 1), y.flatten(), reduction="sum")

    return {
        "mean": lambda s, l, y: F.cross_entropy(l.flatten(0, 1), y.flatten()), "by_samples": lambda s, l, y: summed(l, y) / y.shape[0], "by_len": lambda s, l, y: summed(l, y) / len(y),
        "by_numel": lambda s, l, y: summed(l, y) * (1 / y.numel()), "by_int": lambda s, l, y: summed(l, y) / int(y.shape[0]), "by_root": lambda s, l, y: summed(l, y) / y.shape[0] ** 0.5,
        "by_tensor": lambda s, l, y: summed(l, y) / torch.as_tensor(float(y.numel())), "by_count": lambda s, l, y: summed(l, y) / (y > 2).sum().clamp(min=1),
        "ignored": lambda s, l, y: F.cross_entropy(l.flatten(0, 1), y.flatten(), ignore_index=3), "smoothed": lambda s, l, y: F.cross_entropy(l.transpose(1, 2), y, label_smoothing=0.1),
        "smoothed_sum": lambda s, l, y: F.cross_entropy(l.flatten(0, 1), y.flatten(), ignore_index=2, label_smoothing=0.3, reduction="sum") / y.numel(),
        "soft": lambda s, l, y: F.cross_entropy(l.flatten(0, 1), F.one_hot(y.flatten(), CLASSES).to(l.dtype) * 0.8 + 0.2 / CLASSES),
        "distilled": lambda s, l, y: F.kl_div(F.log_softmax(l, -1), F.softmax(s.table.weight.detach()[y][..., :1] * torch.arange(CLASSES), -1), reduction="batchmean"),
        "penalty": lambda s, l, y: F.cross_entropy(l.flatten(0, 1), y.flatten()) + 0.01 * sum((p ** 2).sum() for p in s.head.parameters()) / y.shape[0],
        "uncertain": lambda s, l, y: F.cross_entropy(l.flatten(0, 1), y.flatten()) * torch.exp(-s.head.bias[0]) + s.head.bias[0], "min": lambda s, l, y: summed(l, y) / min(y.shape[0], 4),
        "squares": lambda s, l, y: ((l.softmax(-1)[..., 0] - y / CLASSES) ** 2).mean(), "auxiliary": lambda s, l, y: F.cross_entropy(l.flatten(0, 1), y.flatten()) + 0.1 * l.logsumexp(-1).pow(2).mean(),
    }


def made(numbers):
    """A random module and the names of its blocks."""
    import torch
    from torch import nn

    every, forms = pieces(), losses()
    def chosen(table):
        planted = numbers.random() < 0.15
        return numbers.choice([name for name in table if (name in PLANTED) == planted])

    names = [chosen(every) for _ in range(numbers.randint(1, 4))]
    form = chosen(forms)

    class Random(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(CLASSES, WIDTH), nn.Linear(WIDTH, CLASSES)
            for i, name in enumerate(names):
                every[name][0](self, i)

        def forward(self, input_ids, labels):
            x = self.table(input_ids)
            for i, name in enumerate(names):
                x = every[name][1](self, i, x)
            return forms[form](self, self.head(x), labels)

    torch.manual_seed(numbers.randrange(1 << 30))
    return Random(), names, form


def apart(module, path, rows, seed):
    """The largest difference of loss and gradients between file and module on other data, in f64."""
    import torch
    from zorse._file_step import File, by_parameter, far, largest
    from zorse._module_step import training_step

    generator = torch.Generator().manual_seed(seed)
    inputs = {name: torch.randint(0, CLASSES, (rows, LENGTH), generator=generator) for name in ("input_ids", "labels")}
    step, file = training_step(module, inputs.values(), True), File(path, True)
    values, gradients = file.step({n: inputs[n] for n in file.inputs})
    found, wanted = by_parameter(file, gradients, step.gradients)
    scale = max([largest(g) for g in wanted.values()] + [1e-300])
    return max([far(values[file.outputs[0]].detach(), step.outputs[0], max(largest(step.outputs[0]), 1e-12))] + [far(found[n], g, scale) if n in found else largest(g) / scale for n, g in wanted.items()])


def reference(module, path, rows, seed):
    """The same for the loss, by ONNX's reference evaluator; None if it does not support the file."""
    import numpy as np
    import onnx
    import torch
    from onnx.reference import ReferenceEvaluator

    model = onnx.load(path)
    if {n.op_type for n in model.graph.node} & {"Dropout", "BatchNormalization", "RandomUniformLike", "Bernoulli"} or any(i.name.endswith("_float16") for i in model.graph.node):
        return None
    generator = torch.Generator().manual_seed(seed)
    inputs = {name: torch.randint(0, CLASSES, (rows, LENGTH), generator=generator) for name in ("input_ids", "labels")}
    try:
        (loss,) = ReferenceEvaluator(model).run(None, {i.name: inputs[i.name].numpy() for i in model.graph.input})
    except Exception as error:
        if os.environ.get("ZORSE_SHOW"):
            print(f"ONNX's evaluator: {type(error).__name__}: {str(error)[:300]}")
        return None
    with torch.no_grad():
        expected = float(module.train()(*inputs.values()))
    return abs(float(np.asarray(loss).sum()) - expected) / max(abs(expected), 1e-6)


def main():
    ensure_torch()
    import logging

    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    import zorse


    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", type=int)
    a = parser.parse_args()
    print(f"seed {a.seed}", flush=True)
    passed, refused, failed, wrong, worst, judged, alarms = 0, collections.Counter(), 0, [], 0.0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.onnx")
        for i in range(a.count) if a.only is None else (a.only,):
            module, names, form = made(random.Random(f"{a.seed} {i}"))
            label = f"{i}: {' '.join(names)}, {form}"
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                try:
                    zorse.export(module, path, sequence=LENGTH, vocabulary=CLASSES, dynamo=i % 3 == 0)
                except zorse.ZorseError as error:
                    by_name = "PyTorch cannot export" not in str(error)
                    refused["by name" if by_name else "by PyTorch's exporter"] += 1
                    needless = by_name and not PLANTED & {*names, form}
                    alarms += needless
                    if a.only is not None or needless:
                        print(f"{'NEEDLESS ' if needless else ''}{label}, by {'dynamo' if i % 3 == 0 else 'TorchScript'}: {error}", flush=True)
                    continue
            unverified = [str(w.message) for w in said if "not compared" in str(w.message)]
            if unverified:
                failed += 1
                print(f"{label}: {unverified[0]}")
                continue
            passed += 1
            found = max(apart(module, path, rows, 100 * i + rows) for rows in (3, 7))
            other = reference(module, path, 4, i) if i % 2 else None
            judged += other is not None
            worst = max(worst, found)
            if found > 1e-6 or (other or 0) > 1e-3:
                wrong.append(label)
                print(f"WRONG {label}: {found:.2g}, by ONNX's evaluator {other}", flush=True)
    print(f"seed {a.seed}: worst difference {worst:.2g}; {judged} losses by ONNX's evaluator, too")
    z.finish([not wrong, not alarms], f"{passed + sum(refused.values()) + failed} random modules, {passed} exported and equal at other batches, " +
             ", ".join(f"{n} refused {how}" for how, n in refused.items()) + f", {alarms} of these needlessly, {failed} not compared, {len(wrong)} silently different")


if __name__ == "__main__":
    main()
