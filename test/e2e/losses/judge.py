"""Compares the tools' results for an ONNX file with its known loss, gradients and trained parameters: equal, refused
(with the message), or wrong.
"""
import json
import os
import re

import numpy as np

import harness as z

LIMIT = 1e-12
STEPS = 2
REFUSED, FAILED, WRONG, EQUAL = "refused", "failed", "WRONG", "equal"


class Verdict:
    def __init__(self, kind, text="", error=0.0):
        self.kind, self.text, self.error = kind, text, error


class Expected:
    """One batch size: inputs of all steps, the SGD learning rate, the loss of every step, the first step's gradients,
    the final parameters."""

    def __init__(self, batch, inputs, rate, losses, gradients, parameters):
        self.batch, self.inputs, self.rate, self.losses, self.gradients, self.parameters = batch, inputs, rate, losses, gradients, parameters


def rate_for(gradients):
    """A power of two that changes parameters by about 0.01 at most in the first step, for every scale of the loss."""
    scale = max([float(np.max(np.abs(g))) for g in gradients.values()] + [1e-300])
    return 2.0 ** int(np.floor(np.log2(0.01 / scale))) if np.isfinite(scale) else 1.0


def uneven(units, B, whole=False):
    """name -> (devices, cells): one device, and two divisions of the units and B samples with cells of different sizes. \param whole  all samples are one group, so
    only units are divided"""
    half = max(1, units // 2)
    if whole:
        halves = (["a", "b"], [(0, half, 0, B, "a"), (half, units, 0, B, "b")]) if half < units else (["b"], [(0, units, 0, B, "b")])
        return {"one": (["a"], [(0, units, 0, B, "a")]), "shares": halves, "pipeline": halves}
    out = {"one": (["a"], [(0, units, 0, B, "a")]),
           "shares": (["a", "b"], [(0, units, 0, 1, "a"), (0, units, 1, B - 1, "a"), (0, units, B - 1, B, "b")])}
    if half == units:
        return {**out, "pipeline": (["a", "b", "c"], [(0, units, 0, 2, "c"), (0, units, 2, B - 1, "a"), (0, units, B - 1, B, "b")])}
    front = [(0, half, 0, B - 1, "a"), (0, half, B - 1, B, "b")]
    back = [(half, units, 0, 1, "b"), (half, units, 1, B - 2, "c"), (half, units, B - 2, B, "a")]
    return {**out, "pipeline": (["a", "b", "c"], front + back)}


def worst(found, wanted):
    """Largest difference, relative to the largest number of all tensors. A parameter without a gradient may be missing."""
    scale = max([float(np.max(np.abs(g))) for g in wanted.values() if g.size] + [1e-300])
    out = 0.0
    for name, g in wanted.items():
        f = found.get(name, np.zeros_like(g))
        if f.shape != g.shape or not np.isfinite(f).all():
            return float("inf")
        out = max(out, float(np.max(np.abs(f - g))) / scale if g.size else 0.0)
    return out


def error_of(text):
    """The first error that a tool printed, in one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if re.search(r"\berror\b", line)), None)
    return " ".join(lines[first:first + 3]) if first is not None else " ".join(lines[-3:])


def units_of(bundle):
    return int(re.search(r"(\d+) units? of ", z.call("zorse-inspect", bundle)[1]).group(1))


def is_one_group(bundle):
    """Whether the compiler has taken all samples of a step as one group."""
    with open(os.path.join(bundle, "plan.json")) as f:
        return "group_rows" in json.load(f)


class Judge:
    def __init__(self, folder, words=()):
        self.folder, self.words = folder, list(words)
        self.cluster = z.cluster(folder, ["a", "b", "c"])

    def compile(self, model, expected, plan):
        bundle = os.path.join(self.folder, "tried.zorse")
        training = {"optimizer": "sgd", "lr": repr(expected.rate), "max-grad-norm": "0"}
        code, out, err = z.compile(model, bundle, self.cluster, expected.batch, 0, plan, training, "f64", ok=False, extra=self.words)
        return code, bundle, err + out

    def trained(self, bundle, expected):
        """(largest error, location) of two steps."""
        gradients, checkpoint = (os.path.join(self.folder, name) for name in ("tried.gradients", "tried.checkpoint"))
        files = {name: os.path.join(self.folder, name + ".npy") for name in expected.inputs}
        for name, path in files.items():
            np.save(path, expected.inputs[name])
        while True:
            try:
                data = ",".join(f"{name}={path}" for name, path in files.items())
                metrics = z.run(bundle, data, len(expected.losses), gradients, checkpoint, extra=("--in-process", "--quiet"))
                break
            except z.Failure as failure:  # an input that is read only for its shape is not an input of the bundle
                unread = re.search(r"the model has no input '(\w+)'", str(failure))
                if not unread or unread.group(1) not in files:
                    raise
                del files[unread.group(1)]
        saved = z.safetensors(checkpoint)  # without parameters that have no gradient, as in `gradients`
        losses = z.relative([m["loss"] for m in metrics], expected.losses)
        after = worst(saved, {name: p for name, p in expected.parameters.items() if name in saved})
        return max((losses, "losses"), (worst(z.safetensors(gradients), expected.gradients), "gradients"), (after, "parameters after the last step"))

    def judge(self, model, cases, plans=("one", "shares", "pipeline"), limit=LIMIT):
        """The verdict over all batch sizes and plans. One refusal (an error of zorse-compile with exit code 1) makes
        the form refused."""
        refusals, accepted, largest, warned = [], 0, 0.0, ""
        for expected in cases:
            units, whole = None, False
            for name in plans:
                plan = None
                if units is not None:
                    if whole and name == "pipeline":
                        continue
                    devices, cells = uneven(units, expected.batch, whole)[name]
                    plan = z.plan(self.folder, name, expected.batch, devices, cells)
                code, bundle, text = self.compile(model, expected, plan)
                where = f"B = {expected.batch}, plan '{name}'"
                if code == 1 and "error" in text:
                    refusals.append((where, error_of(text)))
                    if name == plans[0]:
                        break
                    continue
                if code != 0:
                    return Verdict(FAILED, f"{where}: zorse-compile ended with {code}: {text[-300:]}")
                if units is None:
                    units, whole = units_of(bundle), is_one_group(bundle)
                warned = warned or " ".join(line for line in text.splitlines() if "warning" in line)
                try:
                    error, what = self.trained(bundle, expected)
                except z.Failure as failure:
                    return Verdict(FAILED, f"{where}: {str(failure)[-400:]}")
                accepted += 1
                largest = max(largest, error)
                if not error <= limit:
                    return Verdict(WRONG, f"{where}: {what} off by {error:.2g}" + (f"; {warned}" if warned else "; without a warning"), error)
        if refusals:
            return Verdict(REFUSED, (f"at {refusals[0][0]}, though not always: " if accepted else "") + refusals[0][1])
        return Verdict(EQUAL, error=largest)
