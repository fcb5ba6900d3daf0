"""Compares the set of trained parameters with PyTorch: small random modules with random facts about their parameters,
exported in five ways (needs PyTorch: tools/python-env.sh).

    trained_facts.py [--modules 60] [--seed 0] [--compile] [--keep FOLDER]

Parameters are frozen, tied, scalar, of broadcast shapes, and used in Where, Max, Pow and Div, in a weight norm, a LoRA
product, exp(g), softplus(g), 1 + w. Modules also have float buffers, detached values, values computed under no_grad,
and embeddings with padding rows.

Every export is compiled with the facts that python/zorse/metadata.py writes, and again without them. With facts a model
must be refused with a message, or agree with PyTorch: the same parameters have gradients, and these are equal to 1e-5.
Without facts it may also differ if the compiler has reported its guesses. The last line counts the outcomes; no model
may differ silently.
"""
import argparse
import collections
import copy
import fnmatch
import os
import re
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
here = os.path.dirname(os.path.abspath(__file__))
sys.path = [p for p in sys.path if os.path.abspath(p or ".") != here] + [here]  # after Python's standard modules: one file here is named profile
import logging

logging.disable(logging.WARNING)
import numpy as np
import onnx
import torch
import torch.nn as nn
import torch.nn.functional as F

import harness as z

sys.path.insert(0, os.path.join(z.ROOT, "models"))
from export import export
import zorse.metadata as helper

VOCABULARY, C, H, ROWS, LENGTH = 13, 8, 2, 2, 6
SGD = {"optimizer": "sgd", "lr": "1e-2"}
KINDS = {"default": dict(optimize=True, dynamic=False), "unoptimized": dict(), "torchscript": dict(dynamo=False), "torchscript-eval": None, "opset23": dict(opset=23, dynamic=False)}


def parameter(rng, *shape, trained=True):
    return nn.Parameter(torch.from_numpy(rng.normal(0.3, 0.3, shape)).float(), requires_grad=trained)


class Part(nn.Module):
    """A random operation on activations x [rows, length, C]."""

    KINDS = ("plain", "frozen-linear", "frozen-bias", "buffer-add", "buffer-multiply", "scalar", "one", "channels", "channels-add", "heads", "where", "max", "pow", "div", "weight-norm",
             "lora", "exp", "softplus", "one-plus", "detach", "detach-parameter", "no-grad", "norm", "frozen-norm", "unused", "merged", "vector", "position", "rotary")

    def __init__(self, kind, rng):
        super().__init__()
        self.kind = kind
        trained = rng.random() < 0.8
        shapes = {"scalar": (), "one": (1,), "channels": (1, 1, C), "channels-add": (1, 1, C), "heads": (H, 1, 1), "where": (C,), "max": (C,), "pow": (), "div": (C,), "exp": (C,),
                  "softplus": (C,), "one-plus": (C,), "detach-parameter": (C,), "no-grad": (C,), "vector": (C,), "position": (1, LENGTH, C)}
        if kind in shapes:
            self.p = parameter(rng, *shapes[kind], trained=trained)
        if kind in ("plain", "frozen-linear", "frozen-bias", "weight-norm", "lora", "merged"):
            self.linear = nn.Linear(C, C)
            self.linear.weight.requires_grad_(kind != "frozen-linear")
            self.linear.bias.requires_grad_(kind != "frozen-bias")
        if kind == "weight-norm":
            self.linear = nn.utils.parametrizations.weight_norm(self.linear)
        if kind == "lora":
            self.linear.weight.requires_grad_(False)
            self.a, self.b = parameter(rng, C, 2), parameter(rng, 2, C)
        if kind.startswith("buffer"):
            self.register_buffer("b", torch.from_numpy(rng.normal(0.3, 0.3, (C,) if rng.random() < 0.5 else (1, 1, C))).float(), persistent=bool(rng.random() < 0.5))
        if kind in ("norm", "frozen-norm", "merged"):
            self.norm = nn.LayerNorm(C)
            self.norm.weight.requires_grad_(kind != "frozen-norm")
        if kind == "merged":
            self.norm2 = nn.LayerNorm(C)
            self.norm2.weight.requires_grad_(trained)
        if kind == "unused":
            self.p = parameter(rng, C)
        if kind == "rotary":
            angles = torch.arange(LENGTH)[:, None] / 100 ** (torch.arange(C)[None] / C)
            self.register_buffer("cos", angles.cos())

    def forward(self, x, ids):
        k = self.kind
        if k in ("plain", "frozen-linear", "frozen-bias", "weight-norm"):
            return x + torch.tanh(self.linear(x))
        if k == "lora":
            return x + F.linear(x, self.linear.weight + self.a @ self.b, self.linear.bias)
        if k == "buffer-add":
            return x + self.b
        if k == "buffer-multiply":
            return x * self.b + x
        if k in ("scalar", "one", "channels", "vector"):
            return x * self.p + 0.5 * x
        if k in ("channels-add", "position"):
            return x + self.p
        if k == "heads":
            y = x.view(x.shape[0], x.shape[1], H, C // H).transpose(1, 2) * self.p
            return x + y.transpose(1, 2).reshape(x.shape[0], x.shape[1], C)
        if k == "where":
            return torch.where((ids > 4)[..., None], x, self.p)
        if k == "max":
            return torch.maximum(x, self.p)
        if k == "pow":
            return torch.pow(x * x + 1, self.p)
        if k == "div":
            return x / (self.p * self.p + 1)
        if k == "exp":
            return x * torch.exp(self.p)
        if k == "softplus":
            return x * F.softplus(self.p)
        if k == "one-plus":
            return F.layer_norm(x, (C,)) * (1 + self.p)
        if k == "detach":
            return x + x.detach() * x
        if k == "detach-parameter":
            return x * self.p + x * x * self.p.detach()
        if k == "no-grad":
            with torch.no_grad():
                y = torch.tanh(x * self.p)
            return x * self.p + y * x
        if k in ("norm", "frozen-norm"):
            return self.norm(x) + x
        if k == "merged":
            return self.norm2(self.linear(self.norm(x))) + x
        if k == "rotary":
            return x + torch.cat((x[..., C // 2:], x[..., :C // 2]), -1) * self.cos
        return x


class Model(nn.Module):
    def __init__(self, seed):
        super().__init__()
        rng = np.random.default_rng(seed)
        torch.manual_seed(seed)
        kinds = [Part.KINDS[i] for i in rng.permutation(len(Part.KINDS))[:int(rng.integers(1, 4))]]
        self.embedding = nn.Embedding(VOCABULARY, C, padding_idx=0 if rng.random() < 0.3 else None)
        self.embedding.weight.requires_grad_(bool(rng.random() < 0.9))
        self.parts = nn.ModuleList(Part(kind, rng) for kind in kinds)
        self.head = nn.Linear(C, VOCABULARY, bias=False)
        if rng.random() < 0.3:
            self.head.weight = self.embedding.weight
            kinds.append("tied")
        if self.embedding.padding_idx is not None:
            kinds.append("padding")
        with torch.no_grad():  # in most modules no two parameters are equal
            if rng.random() < 0.7:
                for p in self.parameters():
                    p.add_(torch.from_numpy(rng.normal(0, 0.05, p.shape)).float())
            else:
                kinds.append("fresh")
        self.kinds = kinds

    def forward(self, input_ids, labels):
        x = self.embedding(input_ids)
        for part in self.parts:
            x = part(x, input_ids)
        return F.cross_entropy(self.head(torch.tanh(x)).reshape(-1, VOCABULARY), labels.reshape(-1))


def write(module, path, kind):
    """The export with its facts."""
    module.config = type("Config", (), {"context": LENGTH})
    if KINDS[kind] is not None:
        # trust: the compiler must also refuse what the comparison of exports refuses.
        return export(module, path, sequence=LENGTH, rows=ROWS, vocabulary=VOCABULARY, external_data=False, trust=True, **KINDS[kind])
    ids = torch.randint(0, VOCABULARY, (ROWS, LENGTH))
    arguments = (ids, ids.clone())
    torch.onnx.export(module.eval(), arguments, path, input_names=["input_ids", "labels"], output_names=["loss"], dynamo=False, opset_version=17)
    helper.write_metadata(module, path, arguments)


def without_facts(path, to):
    model = onnx.load(path)
    for entry in [p for p in model.metadata_props if p.key == helper.KEY]:
        model.metadata_props.remove(entry)
    onnx.save(model, to)


def reference(module, ids, labels):
    module = copy.deepcopy(module).double()
    module(torch.from_numpy(ids), torch.from_numpy(labels)).backward()
    return {n: p.grad.numpy() for n, p in module.named_parameters(remove_duplicate=False) if p.grad is not None}


def differences(found, expected, module, stored):
    """The differences: names that are trained on one side only, and gradients that are not equal."""
    ties = collections.defaultdict(list)
    for name, p in module.named_parameters(remove_duplicate=False):
        ties[id(p)].append(name)
    same = {name: names for names in ties.values() for name in names}
    total = np.sqrt(sum(float((g ** 2).sum()) for n, g in expected.items() if same[n][0] == n))
    problems, met = [], set()  # problems: (name, what is wrong)
    for name, gradient in found.items():
        original, form = (name, "same") if name not in stored else (stored[name]["parameter"], stored[name]["form"])
        if original not in expected:
            problems.append((name, f"'{name}' is trained, PyTorch does not"))
            continue
        met.update(same[original])
        want = expected[original]
        if form == "transpose":
            want = want.T
        elif form == "rows":  # the position of the rows does not matter here: position tables are whole
            continue
        if want.size != gradient.size or np.linalg.norm(gradient.ravel() - want.ravel()) > 1e-5 * (np.linalg.norm(want) + 1e-3 * total):
            problems.append((name, f"the gradient of '{name}' differs: {np.linalg.norm(gradient):.6g}, PyTorch {np.linalg.norm(want):.6g}"))
    problems += [(None, f"'{name}' is not trained, PyTorch does") for name, g in expected.items() if name not in met and np.linalg.norm(g) > 1e-9]
    return problems


def compiled(folder, path, ids):
    """With the compiled program."""
    bundle, dumped = os.path.join(folder, "m.zorse"), os.path.join(folder, "gradients.safetensors")
    words = ["zorse-compile", path, "--cluster", z.cluster(folder, ["a"]), "--global-batch-size", len(ids), "--seq-length", LENGTH, "--precision", "f64", "-o", bundle]
    code, out, err = z.call(*words, *(f"--{k}={v}" for k, v in SGD.items()), ok=False)
    if code != 0:
        return code, out + err, {}
    z.run(bundle, f"input_ids={folder}/ids.npy,labels={folder}/labels.npy", 1, gradients=dumped)
    return code, out + err, z.safetensors(dumped)


def evaluated(folder, path, ids):
    """With the reference evaluator: the same import and the same differentiation rules, without machine code."""
    code, out, err = z.call("evaluate-onnx", path, len(ids), "--seq-length", LENGTH, "--f64", "--gradients", f"input_ids={folder}/ids.bin", f"labels={folder}/labels.bin", ok=False)
    lines = [line.split(" ") for line in out.splitlines() if line.startswith("gradient ")]
    return code, err, {words[1]: np.array([float(w) for w in words[2:]]) for words in lines}


def judge(folder, path, module, ids, expected, stored, gradients):
    """(agreed, refused, named or DIFFERENT; reason)"""
    code, text, found = gradients(folder, path, ids)
    if code == 1 and "error:" in text:
        return "refused", next(line for line in text.splitlines() if "error:" in line)
    if code != 0:
        return "DIFFERENT", f"ended with {code}: {text[-500:]}"
    problems = differences(found, expected, module, stored)
    if not problems:
        return "agreed", ""
    # Named: a note lists everything that differs. A parameter that is not in the file cannot be listed: then the note
    # must list its substitute.
    patterns = [p for line in text.splitlines() if "the file does not say what is trained" in line or "the file says what is a parameter" in line for p in re.findall(r"'([^']+)'", line)]
    listed = lambda name: any(fnmatch.fnmatchcase(name, p) for p in patterns)
    ours = [name for name, _ in problems if name is not None]
    named = bool(ours) and all(map(listed, ours))
    return "named" if named else "DIFFERENT", "; ".join(why for _, why in problems[:3])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--modules", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", metavar="FOLDER")
    parser.add_argument("--compile", action="store_true", help="compile and run every model instead of evaluating its graph: the same question, slower")
    parser.add_argument("--verbose", action="store_true")
    a = parser.parse_args()
    counts, failed_exports, reasons = {True: collections.Counter(), False: collections.Counter()}, 0, collections.Counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = a.keep or temporary
        os.makedirs(folder, exist_ok=True)
        rng = np.random.default_rng(a.seed)
        ids, labels = rng.integers(0, VOCABULARY, (3, LENGTH)), rng.integers(0, VOCABULARY, (3, LENGTH))
        for name, values in (("ids", ids), ("labels", labels)):
            np.save(os.path.join(folder, name + ".npy"), values)
            values.tofile(os.path.join(folder, name + ".bin"))
        for seed in range(a.seed, a.seed + a.modules):
            for kind in KINDS:
                module = Model(seed)
                path, bare = os.path.join(folder, f"{seed}-{kind}.onnx"), os.path.join(folder, f"{seed}-{kind}-bare.onnx")
                try:
                    if not os.path.exists(path):
                        write(module, path, kind)
                except Exception as problem:  # raised by PyTorch's exporter
                    failed_exports += 1
                    print(f"skip {seed} {kind} {'+'.join(module.kinds)}: the export failed: {type(problem).__name__} {str(problem)[:200]}", flush=True)
                    continue
                without_facts(path, bare)
                expected = reference(module, ids, labels)
                stored = helper.of_file(onnx.load(path), module, folder).get("stored", {})
                for facts, file in ((True, path), (False, bare)):
                    try:
                        verdict, why = judge(folder, file, module, ids, expected, stored, compiled if a.compile else evaluated)
                    except z.Failure as failure:
                        verdict, why = "DIFFERENT", str(failure)[-600:]
                    if facts and verdict == "named":
                        verdict = "DIFFERENT"
                    counts[facts][verdict] += 1
                    if a.verbose or verdict == "DIFFERENT":
                        print(f"{verdict} {seed} {kind} {'with' if facts else 'without'} facts, {'+'.join(module.kinds)}: {why}", flush=True)
                if not a.keep:
                    os.remove(path)
                os.remove(bare)
    good = counts[True]["DIFFERENT"] + counts[False]["DIFFERENT"] == 0 and counts[True]["agreed"] > 0
    total = sum(counts[True].values())
    good &= failed_exports <= total // 20
    with_, bare_ = counts[True], counts[False]
    print(f"{'ok  ' if good else 'FAIL'} {total} exports of {a.modules} modules ({failed_exports} exports failed): with facts {with_['agreed']} agreed, {with_['refused']} refused, {with_['DIFFERENT']} different; "
          f"without {bare_['agreed']} agreed, {bare_['refused']} refused, {bare_['named']} different by a guess that was named, {bare_['DIFFERENT']} silently different")
    sys.exit(not good)


if __name__ == "__main__":
    main()
