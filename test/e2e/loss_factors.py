"""Factors of the loss: whatever expression of the samples and of counts a bundle has, a step's loss and gradients are its value times the sum over samples.

    loss_factors.py

A compiled bundle is given other factors and reductions in its summary, with the digest corrected; dropout is keyed, so that sums are those of the unchanged bundle. Then: steps without labels under
factors that are finite there and that are not; an evaluation of all data as one batch, with a short last one; and texts that are no expressions, which are refused when the bundle is read.
"""
import json
import math
import os
import shutil
import sys
import tempfile

import numpy as np

import harness as z
from damaged_files import parse, read, seal, sha256, unparse

MODEL = os.path.join(z.SMALL, "gpt-tiny-dropout.onnx")
BATCH, LENGTH = 4, 8
LOSS, COUNTS, FACTOR, REDUCE = 8, 42, 6, 1  # fields of ModelSummary, LossTerm and Count
SUM, MAX, MIN = 1, 2, 3


def changed(bundle, folder, name, factor=None, reduce=None):
    """A copy of a bundle with another factor, or another reduction of its count."""
    copy = os.path.join(folder, name + ".zorse")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(bundle, copy)
    path = os.path.join(copy, "summary.pb")
    summary = parse(read(path))
    (term,) = (field for field in summary if field[0] == LOSS)
    (count,) = (field for field in summary if field[0] == COUNTS)
    if factor is not None:
        next(field for field in term[2] if field[0] == FACTOR)[2] = factor.encode()
    if reduce is not None:
        next(field for field in count[2] if field[0] == REDUCE)[2] = reduce
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


def labelled(folder, name, samples, empty=()):
    """Ids, and labels of which each sample ignores another number; all of them in `empty`. Returns what --data takes and labels of every sample."""
    rng = np.random.default_rng(len(name))
    ids = rng.integers(0, 31, (samples, LENGTH)).astype(np.int64)
    labels = ids.copy()
    for s in range(samples):
        labels[s, :LENGTH if s in empty else 1 + s * 5 % 7] = -100
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
        z.compile(MODEL, self.bundle, cluster, BATCH, LENGTH, uneven, {"optimizer": "sgd", "lr": "1", "clip": "0", "schedule": "constant"}, "f64")
        self.data, labels = labelled(folder, "train", 4 * BATCH)
        self.steps = len(labels) // BATCH
        self.rows = labels != -100

    def counts(self, rows, reduce=SUM):
        """n0 of some samples. The graph shifts labels itself: nothing predicts the first one."""
        return float({SUM: np.sum, MAX: np.max, MIN: np.min}[reduce](rows[:, 1:].sum(1)))

    def losses(self, bundle, data=None):
        """Losses of all steps, each of the initial parameters: learning at rate 0."""
        metrics = z.run(bundle, data or self.data, self.steps, extra=["--lr", "0", "--seed", "3"])
        return [m["loss"] for m in metrics], metrics

    def step(self, bundle, data=None):
        """What one step with a learning rate of 1 takes off the parameters."""
        after, before = (os.path.join(self.folder, f"{name}.safetensors") for name in ("after", "before"))
        z.run(bundle, data or self.data, 1, checkpoint=after, extra=["--lr", "1", "--seed", "3"])
        z.run(bundle, data or self.data, 1, checkpoint=before, extra=["--lr", "0", "--seed", "3"])
        new, old = z.safetensors(after), z.safetensors(before)
        return {name: old[name].astype(np.float64) - new[name] for name in old}


def factors(bench, results):
    base, _ = bench.losses(bench.bundle)
    gradient = bench.step(bench.bundle)
    # n0 * loss of the unchanged bundle is the sum over samples, the same whatever the factor.
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


def empty_steps(bench, results):
    data, labels = labelled(bench.folder, "empty", 4 * BATCH, range(BATCH, 2 * BATCH))
    for text, skipped in (("1/n0", True), ("1/max(n0, 1)", False), ("1/(n0 + 1e-8)", False), ("n0/n0", True), ("log(n0)", True)):
        losses, metrics = bench.losses(changed(bench.bundle, bench.folder, "other", text), data)
        results.append(z.check(f"step without labels under {text}: skipped {[bool(m['skipped']) for m in metrics]}", int([bool(m["skipped"]) for m in metrics] != [False, skipped, False, False]), 0))
        results.append(z.check(f"its loss {losses[1]}", int(losses[1] is not None if skipped else losses[1] != 0), 0))
    nothing, _ = labelled(bench.folder, "nothing", BATCH, range(BATCH))
    taken = bench.step(changed(bench.bundle, bench.folder, "other", "1/max(n0, 1)"), nothing)
    results.append(z.check("what a step with a gradient of zero takes off", max(float(np.abs(g).max()) for g in taken.values()), 0))


def evaluations(bench, results):
    """All samples as one batch, with a short last one."""
    for samples in (3 * BATCH, 2 * BATCH + 3, 2 * BATCH + 1, 2):
        data, labels = labelled(bench.folder, f"eval{samples}", samples)
        n = bench.counts(labels != -100)

        def loss(text, reduce=None):
            _, out, _ = z.call("zorse-run", changed(bench.bundle, bench.folder, "other", text, reduce), "--evaluate", "--data", data)
            return float(out.split("evaluation: loss ")[1].split(",")[0])
        mean = loss("1/n0")
        for text, expected in (("1/B", n / samples), ("sqrt(n0)/B", n * math.sqrt(n) / samples), ("1", n), ("1/max(n0, 1000)", n / 1000)):
            results.append(z.check(f"{samples} samples evaluated under {text}", abs(loss(text) / (mean * expected) - 1), 1e-8))
        results.append(z.check(f"{samples} samples evaluated under the greatest count", abs(loss("1/n0", MAX) * bench.counts(labels != -100, MAX) / (mean * n) - 1), 1e-8))


def refusals(bench, results):
    for text, said in (("", "column 1: expected a number"), ("1/(n0", "column 6: expected ')'"), ("1/n1", "reads n1, and there are 1 counts"), ("1/n99", "n0 to n63"), ("system(1)", "'system'"),
                       ("(" * 300, "nested more than 256"), ("1" * 20000, "at most 16384")):
        code, _, err = z.call("zorse-run", changed(bench.bundle, bench.folder, "other", text), "--data", bench.data, "--steps", 1, ok=False)
        good = code == 1 and "summary.pb" in err and said in err and "loss term" in err
        results.append(z.check(f"refused: {text[:20]!r}" + ("" if good else f" {code} {err[-300:]}"), int(not good), 0))
    code, _, err = z.call("zorse-run", changed(bench.bundle, bench.folder, "other", reduce=7), "--data", bench.data, "--steps", 1, ok=False)
    results.append(z.check("refused: a reduction of no kind" + ("" if "reduced in no way" in err else err[-300:]), int(code != 1 or "reduced in no way" not in err), 0))


def weights_that_are_no_numbers(bench, results):
    """A mean weighted by an input: what its counts are made of may hold NaN. Such a step is skipped, and that is the data's fault, not a batch without labels."""
    folder, batch = bench.folder, 3
    bundle = os.path.join(folder, "weighted.zorse")
    z.compile(os.path.join(z.SMALL, "zoo", "weighted.onnx"), bundle, z.cluster(folder, ["a"]), batch, 0, training={"optimizer": "sgd", "lr": "0.1", "clip": "0"})
    weights = np.load(os.path.join(z.SMALL, "zoo", "weighted.weights.npy"))

    def data(of_step):
        """of_step: {step: weights of its samples}"""
        changed = weights.copy()
        for step, value in of_step.items():
            changed[(step - 1) * batch:step * batch] = value
        np.save(os.path.join(folder, "weights.npy"), changed)
        return ",".join([f"{name}={z.SMALL}/zoo/weighted.{name}.npy" for name in ("ids", "labels")] + [f"weights={folder}/weights.npy"])
    for value in (math.nan, math.inf, 0):
        metrics = z.run(bundle, data({2: value}), 4)
        results.append(z.check(f"weights of {value} are skipped", int([bool(m["skipped"]) for m in metrics] != [False, True, False, False]), 0))
        _, _, err = z.call("zorse-run", bundle, "--data", data({2: value}), "--steps", 4, "--nonfinite", "stop", ok=False)
        named = "the loss is not finite" if value == math.inf else f"the factor 1/n0 of the loss is {'inf' if value == 0 else 'nan'} (n0 = {value:g})"
        said = f"step 2: {named}" in err and ("nothing to learn from" in err) == (value == 0)
        results.append(z.check(f"and named where that stops the run{'' if said else ': ' + err}", int(not said), 0))
        code, _, err = z.call("zorse-run", bundle, "--data", data({step: value for step in range(1, 8)}), "--steps", 7, ok=False)
        said = code == 3 and ("anything to learn from" in err) == (value == 0)
        results.append(z.check(f"a run of such steps alone fails{'' if said else f': {code} {err}'}", int(not said), 0))


def main():
    results = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder)
        for part in (factors, empty_steps, evaluations, refusals, weights_that_are_no_numbers):
            part(bench, results)
    z.finish(results)


if __name__ == "__main__":
    sys.exit(main())
