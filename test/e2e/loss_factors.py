"""Loss expressions in a bundle: the texts in its summary define the factors of the loss, the counts, and the known
values of a step. (The texts that the compiler writes for a file's loss, and data without a gradient, are tested in
loss_inputs.py.)

    loss_factors.py

The test replaces texts in the summary of a compiled bundle and corrects the digest: factors and reductions of the loss
(losses and gradients are the text's value times the sum over samples), and values that the forward reads (zorse.known),
on one device and on two with uneven cells. Invalid expressions are refused when the bundle is read.
"""
import json
import math
import os
import shutil
import sys
import tempfile

import numpy as np

import harness as z
import onnx_file as onnx
from damaged_files import parse, read, seal, sha256, unparse

MODEL = os.path.join(z.SMALL, "gpt-tiny-dropout.onnx")
BATCH, LENGTH = 4, 8
LOSS, COUNTS, KNOWN, FACTOR, REDUCE = 8, 42, 43, 6, 1  # fields of ModelSummary, LossTerm and Count
SUM, MAX, MIN = 1, 2, 3


def changed(bundle, folder, name, factor=None, reduce=None, known=None):
    """A copy of a bundle with another factor, another reduction of its count, or another value that its forward reads."""
    copy = os.path.join(folder, name + ".zorse")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(bundle, copy)
    path = os.path.join(copy, "summary.pb")
    summary = parse(read(path))
    the = lambda number, fields=summary: next(field for field in fields if field[0] == number)
    if factor is not None:
        the(FACTOR, the(LOSS)[2])[2] = factor.encode()
    if reduce is not None:
        the(REDUCE, the(COUNTS)[2])[2] = reduce
    if known is not None:
        the(KNOWN)[2] = known.encode()
    data = unparse(summary)
    with open(path, "wb") as f:
        f.write(data)
    manifest = json.loads(read(os.path.join(copy, "manifest.json")))
    manifest["files"]["summary.pb"] = sha256(data)
    text = json.dumps(manifest).encode()
    for file, contents in (("manifest.json", text), ("manifest.sha256", seal(text))):
        with open(os.path.join(copy, file), "wb") as f:
            f.write(contents)
    return copy


def labelled(folder, name, samples):
    """Ids, and labels with a different number of ignored positions per sample. Returns the value of --data and the
    labels of every sample."""
    rng = np.random.default_rng(len(name))
    ids = rng.integers(0, 31, (samples, LENGTH)).astype(np.int64)
    labels = ids.copy()
    for s in range(samples):
        labels[s, :1 + s * 5 % 7] = -100
    paths = {kind: os.path.join(folder, f"{name}-{kind}.npy") for kind in ("ids", "labels")}
    np.save(paths["ids"], ids)
    np.save(paths["labels"], labels)
    return f"input_ids={paths['ids']},labels={paths['labels']}", labels


class Bench:
    def __init__(self, folder):
        self.folder = folder
        cluster = z.cluster(folder, ["a", "b"])
        uneven = z.plan(folder, "uneven", BATCH, ["a", "b"], [(0, 3, 0, 3, "a"), (0, 3, 3, 4, "b"), (3, 6, 0, 3, "b"), (3, 6, 3, 4, "b")])
        self.bundle = os.path.join(folder, "base.zorse")
        z.compile(MODEL, self.bundle, cluster, BATCH, LENGTH, uneven, {"optimizer": "sgd", "lr": "1", "max-grad-norm": "0", "lr-scheduler-type": "constant"}, "f64")
        self.data, labels = labelled(folder, "train", 4 * BATCH)
        self.steps = len(labels) // BATCH
        self.rows = labels != -100

    def counts(self, rows, reduce=SUM):
        """n0 of some samples. The graph shifts labels itself: no position predicts the first one."""
        return float({SUM: np.sum, MAX: np.max, MIN: np.min}[reduce](rows[:, 1:].sum(1)))

    def losses(self, bundle, data=None):
        """Losses of all steps with the initial parameters: the learning rate is 0."""
        metrics = z.run(bundle, data or self.data, self.steps, extra=["--lr", "0", "--seed", "3"])
        return [m["loss"] for m in metrics], metrics

    def step(self, bundle, data=None):
        """The change of the parameters by one step with a learning rate of 1: old minus new."""
        after, before = (os.path.join(self.folder, f"{name}.safetensors") for name in ("after", "before"))
        z.run(bundle, data or self.data, 1, checkpoint=after, extra=["--lr", "1", "--seed", "3"])
        z.run(bundle, data or self.data, 1, checkpoint=before, extra=["--lr", "0", "--seed", "3"])
        new, old = z.safetensors(after), z.safetensors(before)
        return {name: old[name].astype(np.float64) - new[name] for name in old}


def factors(bench, results):
    base, _ = bench.losses(bench.bundle)
    gradient = bench.step(bench.bundle)
    # n0 * loss of the unchanged bundle is the sum over samples, which does not depend on the factor.
    n = [bench.counts(bench.rows[s:s + BATCH]) for s in range(0, len(bench.rows), BATCH)]
    for text, value in (("1/(2*B)", lambda n: 1 / (2 * BATCH)), ("0.3/n0", lambda n: 0.3 / n), ("sqrt(B)/pow(n0, 2)", lambda n: 2 / n**2), ("1/max(n0, 1) - 0.25/B", lambda n: 1 / n - 0.0625),
                        ("-1/(n0 + 1e-5)", lambda n: -1 / (n + 1e-5)), ("where(less(n0, 14), 1, exp(-n0/B))", lambda n: 1.0 if n < 14 else math.exp(-n / BATCH))):
        other = changed(bench.bundle, bench.folder, "other", text)
        found, _ = bench.losses(other)
        results.append(z.check(f"losses under {text}", z.relative(found, [l * k * value(k) for l, k in zip(base, n)]), 1e-12))
        taken = bench.step(other)
        results.append(z.check(f"gradients under {text}", z.gradient_error(taken, {name: g * n[0] * value(n[0]) for name, g in gradient.items()})[0], 1e-12))
    for reduce in (MAX, MIN):
        found, _ = bench.losses(changed(bench.bundle, bench.folder, "other", "1/n0", reduce))
        m = [bench.counts(bench.rows[s:s + BATCH], reduce) for s in range(0, len(bench.rows), BATCH)]
        results.append(z.check(f"losses under the {'least' if reduce == MIN else 'greatest'} count", z.relative(found, [l * k / j for l, k, j in zip(base, n, m)]), 1e-12))


RATE = 0.25


def reading_samples():
    """loss = mean((x B w - y)^2): its forward reads the number of samples."""
    nodes = [onnx.node("Shape", ["x"], ["shape"]), onnx.constant("zero", (), [0], onnx.INT64), onnx.node("Gather", ["shape", "zero"], ["samples"], axis=0),
             onnx.node("Cast", ["samples"], ["number"], to=onnx.FLOAT), onnx.node("Mul", ["x", "number"], ["h"])]
    return onnx.regression(nodes)


def known(bench, results):
    """Values of the step that the forward reads: losses, and parameters after a step, compared with numpy."""
    folder, batch, rng = bench.folder, 5, np.random.default_rng(3)
    model, weight = os.path.join(folder, "known.onnx"), np.float32([0.01 * i for i in range(16)]).astype(np.float64).reshape(4, 4)
    with open(model, "wb") as f:
        f.write(reading_samples())
    x, y = (rng.integers(-8, 9, (2 * batch, 4)) / 16 for _ in range(2))
    for name, array in (("x", x), ("y", y)):
        np.save(os.path.join(folder, name + ".npy"), array)
    data, bundle = f"x={folder}/x.npy,y={folder}/y.npy", os.path.join(folder, "known.zorse")
    for devices, cells in ((["a"], None), (["a", "b"], [(0, 1, 0, 1, "a"), (0, 1, 1, 4, "b"), (0, 1, 4, 5, "a")])):
        plan = cells and z.plan(folder, "known", batch, devices, cells)
        z.compile(model, bundle, z.cluster(folder, devices), batch, 0, plan, {"optimizer": "sgd", "lr": str(RATE), "max-grad-norm": "0", "lr-scheduler-type": "constant"}, "f64")
        for text, value in ((None, batch), ("1/(2*B)", 1 / (2 * batch)), ("sqrt(B)/4", math.sqrt(batch) / 4), ("-0.5", -0.5), ("max(B, 7) - 6.75", 0.25)):
            w, expected = weight, []
            for k in (0, 1):
                rows = slice(k * batch, (k + 1) * batch)
                left = x[rows] * value @ w - y[rows]
                expected.append(float((left**2).mean()))
                w = w - RATE * 2 * value * x[rows].T @ left / left.size
            saved = os.path.join(folder, "known.safetensors")
            found = z.run(changed(bundle, folder, "other", known=text), data, 2, checkpoint=saved)
            what = f"the forward reads {text or 'B, as the file has it'}, {len(devices)} devices"
            results.append(z.check(f"{what}: losses", z.relative([m["loss"] for m in found], expected), 1e-12))
            results.append(z.check(f"{what}: the parameter after two steps", float(np.abs(z.safetensors(saved)["w"] - w).max()), 1e-12))
    for text in ("1/n0", "sqrt(B", ""):
        code, _, err = z.call("zorse-run", changed(bundle, folder, "other", known=text), "--data", data, "--max-steps", 1, ok=False)
        good = code == 1 and "summary.pb" in err
        results.append(z.check(f"refused as a known value: {text!r}" + ("" if good else f" {code} {err[-300:]}"), int(not good), 0))


def refusals(bench, results):
    for text, said in (("", "column 1: expected a number"), ("1/(n0", "column 6: expected ')'"), ("1/n1", "reads n1, and there are 1 counts"), ("1/n99", "n0 to n63"), ("system(1)", "'system'"),
                       ("(" * 300, "nested more than 256"), ("1" * 20000, "at most 16384")):
        code, _, err = z.call("zorse-run", changed(bench.bundle, bench.folder, "other", text), "--data", bench.data, "--max-steps", 1, ok=False)
        good = code == 1 and "summary.pb" in err and said in err and "loss term" in err
        results.append(z.check(f"refused: {text[:20]!r}" + ("" if good else f" {code} {err[-300:]}"), int(not good), 0))
    code, _, err = z.call("zorse-run", changed(bench.bundle, bench.folder, "other", reduce=7), "--data", bench.data, "--max-steps", 1, ok=False)
    results.append(z.check("refused: a reduction of no kind" + ("" if "unknown reduction" in err else err[-300:]), int(code != 1 or "unknown reduction" not in err), 0))


def main():
    results = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder)
        for part in (factors, known, refusals):
            part(bench, results)
    z.finish(results)


if __name__ == "__main__":
    sys.exit(main())
