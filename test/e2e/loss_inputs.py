"""Losses whose data or form say nothing, and evaluation: what is refused, which steps are skipped, and that an evaluation is the loss of its samples
as one batch.

    loss_inputs.py [bad] [evaluation]

- A loss without samples, one that no parameter reaches and one with a value per sample are refused.
- A step is skipped if its loss or a gradient is not finite (no labels, a NaN among weights or targets, a factor that is infinite); the steps after
  it are as if it had not been.
- A count that the loss keeps from 0 (`clamp(min=1)`) skips nothing.
- Evaluations of 10 samples in batches of 4, on one device and on two, equal the loss of 10 samples. Where numbers of a step are read, every batch is a
  step; where numbers of samples are, the last 2 samples are left out, which is said.
"""
import json
import os
import sys
import tempfile

import numpy as np

import harness as z
from losses import judge, tape_functions
from losses.forms import EXACT, Form, all_forms
from loss_graphs import TRAINED

RATE = 0.0078125
SGD = {"optimizer": "sgd", "lr": str(RATE), "clip": "0"}
DEVICES = (("a",), ("a", "b"))
NAN = float("nan")


class Trial:
    """A form at a batch size in a folder; `data` are batches that steps read in turn."""

    def __init__(self, folder, form, batch, data):
        self.folder, self.form, self.batch, self.data = folder, form, batch, data
        self.file, self.names, *_ = tape_functions.computed(form, tape_functions.initial(), data[0], 0)
        self.model, self.bundle = os.path.join(folder, "loss.onnx"), os.path.join(folder, "loss.zorse")
        with open(self.model, "wb") as f:
            f.write(self.file)

    def compile(self, devices=("a",)):
        """For one device, or for two with cells of different sizes."""
        plan = None
        if len(devices) > 1:
            units = judge.units_of(self.bundle)  # of the bundle for one device
            cells = [(0, units, 0, 1, "a"), (0, units, 1, 3, "b"), (0, units, 3, 4, "a")]
            plan = z.plan(self.folder, "loss", self.batch, devices, cells)
        cluster = z.cluster(self.folder, list(devices))
        code, out, err = z.compile(self.model, self.bundle, cluster, self.batch, 0, plan, SGD, "f64", ok=False, extra=TRAINED)
        return code, err + out

    def run(self, *words):
        """(exit code, what was said, lines of the metrics)"""
        files = []
        for name in self.names:
            path = os.path.join(self.folder, name + ".npy")
            np.save(path, np.concatenate([d[name] for d in self.data]))
            files.append(f"{name}={path}")
        metrics = os.path.join(self.folder, "metrics.jsonl")
        if os.path.exists(metrics):
            os.remove(metrics)
        code, out, err = z.call("zorse-run", self.bundle, "--data", ",".join(files), "--metrics", metrics, "--threads", *words, ok=False)
        lines = []
        if os.path.exists(metrics):
            with open(metrics) as f:
                lines = [json.loads(line) for line in f]
        return code, err + out, lines

    def expected(self):
        """The losses of all steps; None for a step that has to be skipped."""
        parameters, losses = tape_functions.initial(), []
        for data in self.data:
            _, _, loss, gradients = tape_functions.computed(self.form, parameters, data, 0)
            finite = np.isfinite(loss) and all(np.isfinite(g).all() for g in gradients.values())
            losses.append(float(loss) if finite else None)
            if finite:
                parameters = {name: p - RATE * gradients[name] for name, p in parameters.items()}
        return losses


def changed(data, name, where, value):
    out = dict(data)
    out[name] = out[name].copy()
    out[name][where] = value
    return out


REFUSALS = {  # name -> (text, words of the error)
    "a loss of parameters alone": ("s.body.head.weight.pow(2).sum()", ("samples",)),
    "a loss of data alone": ("(q ** 2).mean()", ("nothing to train",)),
    "a loss of data alone, divided by the number of samples": ("(q ** 2).sum() / (2 * q.shape[0])", ("nothing to train",)),
    "a loss with a value per sample": ("each(l, y).sum(1)", ("expects one scalar output, the loss",)),
}
ALL = slice(None)
SKIPS = {  # name -> (text, batch, changes of the first batch)
    "a mean over no labels": ("flat(l, y)", 4, [("y", ALL, -100)]),
    "a sum over no labels, divided by their number": ("total(l, y) / valid(y)", 4, [("y", ALL, -100)]),
    "no labels, and a count of at least 1": ("total(l, y) / valid(y).clamp(min=1)", 4, [("y", ALL, -100)]),
    "no labels beside a term that has its own count":
        ("total(l, y) / valid(y).clamp(min=1) + (((l - q) ** 2).sum(-1) * m).sum() / m.sum()", 4, [("y", ALL, -100)]),
    "a mask of zeros": ("(((l - q) ** 2).mean(-1) * m).sum() / m.sum()", 4, [("m", ALL, 0)]),
    "a NaN among weights": ("(each(l, y) * w).sum() / w.sum()", 4, [("w", (1, 1), NAN)]),
    "a NaN among weights of the numerator alone": ("(each(l, y) * w).sum() / valid(y)", 4, [("w", (1, 1), NAN)]),
    "a NaN among targets": ("F.mse_loss(l, q)", 4, [("q", (1, 1, 1), NAN)]),
    "an infinite weight": ("(each(l, y) * w).sum() / w.sum()", 4, [("w", (1, 1), float("inf"))]),
}


def bad(folder):
    results = []

    def says(good, what, found=""):
        print(f"{'ok  ' if good else 'FAIL'} {what}" + ("" if good else f": {found}"), flush=True)
        results.append(good)

    for name, (text, words) in REFUSALS.items():
        trial = Trial(folder, Form(name, "bad", "refused", text), 4, [tape_functions.data_of(4, 0)])
        code, said = trial.compile()
        says(code == 1 and "error" in said and all(word in said for word in words), f"{name} is refused", f"{code}, {said[-300:]}")
    for name, (text, batch, changes) in SKIPS.items():
        data = [tape_functions.data_of(batch, k) for k in range(3)]
        for change in changes:
            data[0] = changed(data[0], *change)
        trial = Trial(folder, Form(name, "bad", EXACT, text), batch, data)
        wanted = trial.expected()
        skipped = "the first step is skipped" if wanted[0] is None else "no step is skipped"
        for devices in DEVICES:
            code, said = trial.compile(devices)
            code, said, lines = trial.run("--steps", 3) if code == 0 else (code, said, [])
            found = [None if m["skipped"] else m["loss"] for m in lines if "skipped" in m]
            same = len(found) == 3 and all(a == b if None in (a, b) else abs(a - b) <= judge.LIMIT * max(1, abs(b)) for a, b in zip(found, wanted))
            says(same, f"{name}, {len(devices)} devices: {skipped}", f"losses {found}, expected {wanted}; exit {code}, {said[-200:]}")
    trial = Trial(folder, Form("never", "bad", EXACT, "flat(l, y)"), 4, [changed(tape_functions.data_of(4, 0), "y", ALL, -100)] * 2)
    trial.compile()
    code, said, _ = trial.run("--steps", 2)
    good = code == 3 and "error" in said and "labels" in said
    says(good, "no labels in a whole run: exit code 3, and the error speaks of labels", f"{code}, {said[-200:]}")
    trial = Trial(folder, Form("infinite", "bad", EXACT, "square(l, q) / (l.shape[0] - 1)"), 1, [tape_functions.data_of(1, k) for k in range(2)])
    code, said = trial.compile()
    code, said, lines = trial.run("--steps", 2) if code == 0 else (code, said, [])
    good = code == 1 and "error" in said if not lines else code == 3 and all(m["skipped"] for m in lines)
    says(good, "a factor 1/(B - 1) with batches of 1: refused, or every step is skipped and the run fails", f"{code}, {lines}")
    return results


TEXTS = ("mean", "none_mean", "plain_sum", "sum_over_valid_clamped", "sum_over_2B", "sum_over_B_plus_1", "sum_over_root_B", "two_counts",
         "share_of_valid", "token_weights", "max_weight", "masked_mean_of_means", "mse", "l2_over_B", "uncertainty", "x_over_B", "x_centred")
BY_STEPS = ("x_over_B", "x_centred", "x_scaled", "token_weights_softmax", "targets_scaled")  # what reads numbers of its step
NUMBERED = ("alternate", "counts_of_first", "x_plus_first")  # what reads numbers of samples: whole steps alone


def whole(form, data, batch, N):
    """The loss of N samples as one batch; where units or counts read numbers of their step, the mean over steps by samples."""

    def loss(rows):
        return float(tape_functions.computed(form, tape_functions.initial(), {k: v[rows] for k, v in data.items()}, 0)[2])

    if form.name not in BY_STEPS + NUMBERED:
        return loss(slice(0, N))
    N -= N % batch if form.name in NUMBERED else 0
    cuts = [(a, min(a + batch, N)) for a in range(0, N, batch)]
    return sum((b - a) * loss(slice(a, b)) for a, b in cuts) / N


def evaluation(folder):
    results, batch, N = [], 4, 10
    for name in dict.fromkeys(TEXTS + BY_STEPS + NUMBERED):
        form, data = all_forms()[name], tape_functions.data_of(N, 0)
        trial = Trial(folder, form, batch, [data])
        for devices in DEVICES:
            code, said = trial.compile(devices)
            code, said, lines = trial.run("--evaluate") if code == 0 else (code, said, [])
            found = [m["eval_loss"] for m in lines if "eval_loss" in m]
            if not found:
                print(f"FAIL {name}: {form.text}: no evaluation: exit {code}, {judge.error_of(said)[:300]}", flush=True)
                results.append(False)
                break
            error = z.relative(found, [whole(form, data, batch, N)])
            if name in NUMBERED and "8 of 10 samples" not in said:
                print(f"FAIL {name}: what is left out is not said: {said[-200:]}")
                results.append(False)
            results.append(z.check(f"{name}: {form.text}: {N} samples in batches of {batch} on {len(devices)} devices", error, judge.LIMIT))
    few = Trial(folder, all_forms()[NUMBERED[0]], batch, [tape_functions.data_of(batch - 1, 0)])
    few.compile()
    code, said, _ = few.run("--evaluate")
    good = code == 1 and f"the evaluation data have {batch - 1} samples" in said and "--batch" in said
    print(f"{'ok  ' if good else 'FAIL'} less than a step of a loss that reads numbers of samples is refused" + ("" if good else f": {said[-300:]}"), flush=True)
    return results + [good]


def main():
    kinds, results = sys.argv[1:] or ["bad", "evaluation"], []
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            results += {"bad": bad, "evaluation": evaluation}[kind](folder)
    z.finish(results)


if __name__ == "__main__":
    main()
