"""Losses with data or forms from which nothing can be learned, and evaluation: refusals, skipped steps, and equality of
an evaluation and the loss of its samples as one batch. (Texts in a bundle and their meaning are tested in
loss_factors.py; refusals of modules at export in export_check.py.)

    loss_inputs.py [bad] [groups] [python] [evaluation]

- bad: a loss without samples, one that no parameter affects and one with a value per sample are refused. A step is
  skipped if its loss or a gradient is not finite (no labels, a NaN among weights or targets, an infinite factor); later
  steps are as if it had not run. A count that the loss clamps (`clamp(min=1)`) skips nothing. --on-nonfinite=stop, a run
  with only such steps and an evaluation of such data end with the cause.
- groups: a batch that is smaller than a group, or no multiple of it, is refused, and valid sizes are named.
- python: the same inputs through zorse.train and zorse.evaluate.
- evaluation: the evaluation of 10, 9 or 2 samples in batches of 4, on one device and on two, equals the loss of all
  of them. The data may contain an input that the loss does not read, or reads only for its shape. If the model reads
  numbers of a step, every batch is a step. If it reads numbers of samples, the last 2 of 10 samples are left out, which
  is reported.
"""
import json
import os
import sys
import tempfile

import numpy as np

import harness as z
import onnx_file as onnx
from losses import judge, tape_functions
from losses.forms import EXACT, Form, all_forms
from loss_graphs import TRAINED

RATE = 0.0078125
SGD = {"optimizer": "sgd", "lr": str(RATE), "max-grad-norm": "0"}
DEVICES = (("a",), ("a", "b"))
NAN = float("nan")


class Trial:
    """A form at a batch size in a folder; `data` are batches that steps read in rotation."""

    def __init__(self, folder, form, batch, data):
        self.folder, self.form, self.batch, self.data = folder, form, batch, data
        self.file, self.names, *_ = tape_functions.computed(form, tape_functions.initial(), data[0], 0)
        self.model, self.bundle = os.path.join(folder, "loss.onnx"), os.path.join(folder, "loss.zorse")
        with open(self.model, "wb") as f:
            f.write(self.file)

    def compile(self, devices=("a",)):
        """Compiles for one device, or for two with cells of different sizes."""
        plan = None
        if len(devices) > 1:
            units = judge.units_of(self.bundle)  # of the bundle for one device
            cells = [(0, units, 0, 1, "a"), (0, units, 1, 3, "b"), (0, units, 3, 4, "a")]
            plan = z.plan(self.folder, "loss", self.batch, devices, cells)
        cluster = z.cluster(self.folder, list(devices))
        code, out, err = z.compile(self.model, self.bundle, cluster, self.batch, 0, plan, SGD, "f64", ok=False, extra=TRAINED)
        return code, err + out

    def run(self, *words):
        """(exit code, output, lines of the metrics)"""
        files = []
        for name in self.names:
            path = os.path.join(self.folder, name + ".npy")
            np.save(path, np.concatenate([d[name] for d in self.data]))
            files.append(f"{name}={path}")
        metrics = os.path.join(self.folder, "metrics.jsonl")
        if os.path.exists(metrics):
            os.remove(metrics)
        code, out, err = z.call("zorse-run", self.bundle, "--data", ",".join(files), "--metrics-file", metrics, "--in-process", *words, ok=False)
        lines = []
        if os.path.exists(metrics):
            with open(metrics) as f:
                lines = [json.loads(line) for line in f]
        return code, err + out, lines

    def expected(self):
        """The losses of all steps; None for a step that must be skipped."""
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
    "a loss without inputs": ("s.body.head.weight.pow(2).sum()", ("no inputs", "nothing carries samples")),
    "a loss of 0": ("((l - q) ** 2).sum() * 0", ("the number 0", "nothing to train", "a factor of 0")),
    "a loss of data alone": ("(q ** 2).mean()", ("nothing to train",)),
    "a loss of data alone, divided by the number of samples": ("(q ** 2).sum() / (2 * q.shape[0])", ("nothing to train",)),
    "a loss with a value per sample": ("each(l, y).sum(1)", ("expects one scalar output, the loss", "of shape [", "Return the loss from forward")),
}
ALL = slice(None)
SKIPS = {  # name -> (text, batch, changes of the first batch)
    "a mean over no labels": ("flat(l, y)", 4, [("y", ALL, -100)]),
    "a sum over no labels, divided by their number": ("total(l, y) / valid(y)", 4, [("y", ALL, -100)]),
    "no labels, and a count of at least 1": ("total(l, y) / valid(y).clamp(min=1)", 4, [("y", ALL, -100)]),
    "no labels, with a term that has its own count":
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
            code, said, lines = trial.run("--max-steps", 3) if code == 0 else (code, said, [])
            found = [None if m["skipped"] else m["loss"] for m in lines if "skipped" in m]
            same = len(found) == 3 and all(a == b if None in (a, b) else abs(a - b) <= judge.LIMIT * max(1, abs(b)) for a, b in zip(found, wanted))
            says(same, f"{name}, {len(devices)} devices: {skipped}", f"losses {found}, expected {wanted}; exit {code}, {said[-200:]}")
    trial = Trial(folder, Form("never", "bad", EXACT, "flat(l, y)"), 4, [changed(tape_functions.data_of(4, 0), "y", ALL, -100)] * 2)
    trial.compile()
    code, said, _ = trial.run("--max-steps", 2)
    good = code == 3 and "error" in said and "labels" in said
    says(good, "no labels in a whole run: exit code 3, and the error speaks of labels", f"{code}, {said[-200:]}")
    causes(folder, says)
    trial = Trial(folder, Form("infinite", "bad", EXACT, "square(l, q) / (l.shape[0] - 1)"), 1, [tape_functions.data_of(1, k) for k in range(2)])
    code, said = trial.compile()
    code, said, lines = trial.run("--max-steps", 2) if code == 0 else (code, said, [])
    good = code == 1 and "error" in said if not lines else code == 3 and all(m["skipped"] for m in lines)
    says(good, "a factor 1/(B - 1) with batches of 1: refused, or every step is skipped and the run fails", f"{code}, {lines}")
    return results


LABELS, WEIGHTS, TARGETS = "flat(l, y)", "(each(l, y) * w).sum() / w.sum()", "F.mse_loss(l, q)"
CAUSES = (  # name, text, changes of a batch, message of --on-nonfinite=stop, of a run with only such steps and of an evaluation of them
    ("no labels", LABELS, ("y", ALL, -100), "the factor 1/n0 of the loss is inf (n0 = 0): the batch has nothing to learn from", "had anything to learn from", "have no loss"),
    ("weights of 0", WEIGHTS, ("w", ALL, 0), "the factor 1/n0 of the loss is inf (n0 = 0): the batch has nothing to learn from", "had anything to learn from", "have no loss"),
    ("a NaN among weights", WEIGHTS, ("w", (1, 1), NAN), "the factor 1/n0 of the loss is nan (n0 = nan);", "were not finite", "have no loss"),
    ("an infinite weight", WEIGHTS, ("w", (1, 1), float("inf")), "the loss is not finite", "were not finite", "not finite"),
    ("a NaN among targets", TARGETS, ("q", (1, 1, 1), NAN), "the loss is not finite", "were not finite", "not finite: a number among them is not"),
)


def causes(folder, says):
    """The message that ends a run or an evaluation of such data, on one device and on two."""
    for name, text, change, stops, fails, unevaluated in CAUSES:
        broken = changed(tape_functions.data_of(4, 0), *change)
        for devices in DEVICES:
            trial = Trial(folder, Form(name, "bad", EXACT, text), 4, [broken, tape_functions.data_of(4, 1)])
            trial.compile(devices)
            code, said, _ = trial.run("--max-steps", 2, "--on-nonfinite", "stop")
            says(code == 1 and f"step 1: {stops}" in said, f"{name}, {len(devices)} devices: --on-nonfinite=stop names it", f"{code}, {said[-300:]}")
            trial.data = [broken, broken]
            code, said, _ = trial.run("--max-steps", 2)
            says(code == 3 and fails in said, f"{name}, {len(devices)} devices: a run with only such steps ends with exit code 3", f"{code}, {said[-300:]}")
            code, said, lines = trial.run("--eval-only")
            good = code == 1 and "error" in said and unevaluated in said and all(m["eval_loss"] is None for m in lines)
            says(good, f"{name}, {len(devices)} devices: an evaluation of them is an error", f"{code}, {said[-300:]}, {lines}")


NORM = os.path.join(z.SMALL, "batch-norm")


def groups(folder):
    results, cluster, bundle = [], z.cluster(folder, ["a"]), os.path.join(folder, "groups.zorse")
    for batch, group, remedy in ((4, 8, "--global-batch-size=8, or --group-rows=4"), (6, 4, "--global-batch-size=4 or 8, or --group-rows=3"), (1, 4, "--global-batch-size=4, or --group-rows=1"),
                                 (7, 2, "--global-batch-size=6 or 8, or --group-rows=1")):
        for tool in ("zorse-compile", "zorse-plan"):
            words = [tool, os.path.join(NORM, "model.onnx"), "--cluster", cluster, "--global-batch-size", batch, f"--group-rows={group}", *(["--quiet", "-o", bundle] if tool == "zorse-compile" else [])]
            code, out, err = z.call(*words, ok=False)
            good = code == 1 and f"expects a multiple of --group-rows, {group}, got {batch}" in err and remedy in err and not os.path.exists(bundle)
            results.append(good)
            print(f"{'ok  ' if good else 'FAIL'} {tool}: groups of {group} in a batch of {batch}" + ("" if good else f": {code}, {(out + err)[-300:]}"), flush=True)
    return results


def python(folder):
    """Needs only numpy: zorse.train and zorse.evaluate accept the ONNX file."""
    os.environ["ZORSE_BIN"] = z.BIN
    sys.path.insert(0, os.path.join(z.ROOT, "python"))
    import zorse

    results = []

    def says(name, what, words):
        """`what` must raise a ZorseError with these words."""
        try:
            found, good = repr(what()), False
        except zorse.ZorseError as error:
            found = str(error)
            good = all(word in found for word in words)
        print(f"{'ok  ' if good else 'FAIL'} {name}" + ("" if good else f": {found[-400:]}, expected {words}"), flush=True)
        results.append(good)

    for devices in DEVICES:
        options = dict(global_batch_size=4, cluster=z.cluster(folder, list(devices)), optimizer="sgd", lr=RATE, max_grad_norm=0, precision="f64", train=TRAINED[1])
        where = f"{len(devices)} devices"
        for name, text, change, _, fails, unevaluated in CAUSES:
            broken = changed(tape_functions.data_of(4, 0), *change)
            trial = Trial(folder, Form(name, "bad", EXACT, text), 4, [broken])
            arrays = {key: np.concatenate([broken[key]] * 2) for key in trial.names}
            says(f"zorse.train, {name}, {where}", lambda: zorse.train(trial.model, arrays, max_steps=2, **options), (fails,))
            trial.compile()
            says(f"zorse.evaluate, {name}, {where}", lambda: zorse.evaluate(trial.bundle, arrays), (unevaluated,))
            mixed = {key: np.concatenate([broken[key], tape_functions.data_of(4, 1)[key]]) for key in trial.names}
            losses = zorse.train(trial.model, mixed, max_steps=2, **options).losses
            good = losses[0] is None and np.isfinite(losses[1])
            print(f"{'ok  ' if good else 'FAIL'} zorse.train, {name} in the first step alone, {where}: {losses}", flush=True)
            results.append(good)
    data = tape_functions.data_of(4, 0)
    for name, (text, words) in REFUSALS.items():
        trial = Trial(folder, Form(name, "bad", "refused", text), 4, [data])
        says(f"zorse.compile, {name}", lambda: zorse.compile(trial.model, trial.bundle, global_batch_size=4, quiet=True, train=TRAINED[1]), words)
    arrays = {key: np.load(os.path.join(NORM, key + ".npy")) for key in ("pixels", "label")}
    says("zorse.train, a batch smaller than the group", lambda: zorse.train(os.path.join(NORM, "model.onnx"), arrays, max_steps=1, global_batch_size=4, group_rows=8),
         ("expects a multiple of --group-rows, 8, got 4", "--global-batch-size=8, or --group-rows=4"))
    return results


TEXTS = ("mean", "none_mean", "plain_sum", "sum_over_valid_clamped", "sum_over_2B", "sum_over_B_plus_1", "sum_over_root_B", "two_counts",
         "share_of_valid", "token_weights", "max_weight", "masked_mean_of_means", "mse", "l2_over_B", "uncertainty", "x_over_B", "x_centred")
BY_STEPS = ("x_over_B", "x_centred", "x_scaled", "token_weights_softmax", "targets_scaled")  # read numbers of their step
NUMBERED = ("alternate", "counts_of_first", "x_plus_first")  # read numbers of samples: only whole steps


def whole(form, data, batch, N):
    """The loss of N samples as one batch; if units or counts read numbers of their step, the mean over steps by
    samples."""

    def loss(rows):
        return float(tape_functions.computed(form, tape_functions.initial(), {k: v[rows] for k, v in data.items()}, 0)[2])

    if form.name not in BY_STEPS + NUMBERED:
        return loss(slice(0, N))
    N -= N % batch if form.name in NUMBERED else 0
    cuts = [(a, min(a + batch, N)) for a in range(0, N, batch)]
    return sum((b - a) * loss(slice(a, b)) for a, b in cuts) / N


def evaluated_in_groups(folder):
    """The forward reads B before a batch norm with groups of 2, and the loss a sum of weights: both are those of a group, and an evaluation takes all whole groups,
    whatever pads the last batch."""
    of_batch = [onnx.node("Shape", ["x"], ["shape"]), onnx.constant("zero", (), [0], onnx.INT64), onnx.node("Gather", ["shape", "zero"], ["samples"], axis=0),
                onnx.node("Cast", ["samples"], ["number"], to=onnx.FLOAT), onnx.node("Mul", ["x", "number"], ["c"])]
    nodes = [*of_batch, onnx.node("MatMul", ["c", "w"], ["h"]), onnx.node("BatchNormalization", ["h", "scale", "bias", "running", "spread"], ["z", "r", "s"], training_mode=1),
             onnx.node("Sub", ["z", "y"], ["d"]), onnx.node("Mul", ["d", "d"], ["q"]), onnx.node("Mul", ["q", "m"], ["p"]), onnx.node("ReduceSum", ["p"], ["sum"], keepdims=0),
             onnx.node("ReduceSum", ["m"], ["weight"], keepdims=0), onnx.node("Div", ["sum", "weight"], ["loss"])]
    tensors = {"w": [[0.5, -0.25], [1, 0.125], [0.75, -1]], "scale": [1.5, 0.5], "bias": [0.25, -0.5], "running": [0.125, -0.25], "spread": [1.25, 0.75]}
    model, bundle, results, rng = os.path.join(folder, "norm.onnx"), os.path.join(folder, "norm.zorse"), [], np.random.default_rng(11)
    with open(model, "wb") as f:
        f.write(onnx.model(nodes, [onnx.tensor(name, np.shape(v), np.ravel(v).tolist()) for name, v in tensors.items()], [onnx.value("x", ["batch", 3]), onnx.value("y", ["batch", 2]), onnx.value("m", ["batch", 1])],
                           [onnx.value("loss", [])]))
    z.compile(model, bundle, z.cluster(folder, ["a"]), 4, 0, None, SGD, "f64", extra=("--group-rows=2", "--train", "w,scale,bias"))
    for N in (8, 6, 5, 3, 1):
        x, y, m = rng.normal(size=(N, 3)), rng.normal(size=(N, 2)), rng.uniform(0.5, 2, size=(N, 1))
        for name, array in (("x", x), ("y", y), ("m", m)):
            np.save(os.path.join(folder, name + ".npy"), array)

        def loss(a):
            rows = slice(a, a + 2)
            out = (x[rows] * 2 @ tensors["w"] - tensors["running"]) / np.sqrt(np.asarray(tensors["spread"]) + 1e-5) * tensors["scale"] + tensors["bias"]
            return float(((out - y[rows])**2 * m[rows]).sum() / m[rows].sum())

        metrics = os.path.join(folder, "metrics.jsonl")
        code, out, err = z.call("zorse-run", bundle, "--eval-only", "--data", f"x={folder}/x.npy,y={folder}/y.npy,m={folder}/m.npy", "--metrics-file", metrics, ok=N > 1)
        if N == 1:
            good = code == 1 and "the evaluation data has 1 samples, but the loss combines groups of 2 samples" in err
            results.append(good)
            print(f"{'ok  ' if good else 'FAIL'} an evaluation of less than a group is refused" + ("" if good else f": {code}, {(out + err)[-300:]}"), flush=True)
            continue
        with open(metrics) as f:
            found = json.loads(f.readline())["eval_loss"]
        name = f"B read before a batch norm, weights by their sum: {N} samples in batches of 4, groups of 2"
        results.append(z.check(name, z.relative([found], [np.mean([loss(a) for a in range(0, N - 1, 2)])]), 1e-8))
        good = f"{N // 2 * 2}{f' of {N}' if N % 2 else ''} samples" in out
        results.append(good)
        print(f"{'ok  ' if good else 'FAIL'} {name}: their number is printed" + ("" if good else f": {out[-200:]}"), flush=True)
    return results


def ignored(folder):
    """Data for all inputs of a file; the loss reads one of them only for its shape, and one not at all."""
    nodes = [onnx.node("Shape", ["z"], ["shape"]), onnx.constant("zero", (), [0], onnx.INT64), onnx.node("Gather", ["shape", "zero"], ["samples"], axis=0),
             onnx.node("Cast", ["samples"], ["number"], to=onnx.FLOAT), onnx.node("MatMul", ["x", "w"], ["p"]), onnx.node("Mul", ["p", "p"], ["s"]),
             onnx.node("ReduceSum", ["s"], ["sum"], keepdims=0), onnx.node("Div", ["sum", "number"], ["loss"])]
    inputs = [onnx.value("x", ["batch", 4]), onnx.value("z", ["batch", 3]), onnx.value("unread", ["batch", 2])]
    model, bundle, results = os.path.join(folder, "ignored.onnx"), os.path.join(folder, "ignored.zorse"), []
    with open(model, "wb") as f:
        f.write(onnx.model(nodes, [onnx.tensor("w", (4, 1), [1, 2, 3, 4])], inputs, [onnx.value("loss", [])]))
    z.compile(model, bundle, z.cluster(folder, ["a"]), 2, 0, None, SGD, "f64")
    arrays = {"x": np.arange(24.0).reshape(6, 4) / 16, "z": np.zeros((6, 3)), "unread": np.zeros((6, 2)), "short": np.zeros((5, 3)), "odd": np.zeros((6, 4))}
    for name, array in arrays.items():
        np.save(os.path.join(folder, name + ".npy"), array)
    of = lambda **files: ",".join(f"{name}={folder}/{file}.npy" for name, file in files.items())
    expected = float(((arrays["x"] @ [1, 2, 3, 4])**2).sum() / 6)
    for data, words in ((of(x="x"), ()), (of(x="x", z="z", unread="unread"), ("does not read input 'z', or only its shape", "'unread'", "is not used")),
                        (of(x="x", z="short"), ("has 5 samples", "has 6")), (of(x="x", z="odd"), ("input 'z' expects an array of shape samplesx3, got 6x4",)),
                        (of(x="x", other="x"), ("no input 'other'", "'x'", "not read by the loss: 'z', 'unread'")), (of(x="x") + "," + of(x="x"), ("names an input twice: 'x'",))):
        code, out, err = z.call("zorse-run", bundle, "--eval-only", "--data", data, ok=False)
        fails = bool(words) and "is not used" not in words
        good = all(word in out + err for word in words) and (code == 1 if fails else code == 0 and abs(float(out.split("evaluation: loss ")[1].split(",")[0]) / expected - 1) < 1e-5)
        print(f"{'ok  ' if good else 'FAIL'} data {data.replace(folder + '/', '')}: {'refused' if fails else 'evaluated'}" + ("" if good else f": {code}, {out + err}"), flush=True)
        results.append(good)
    return results


def guessed(folder):
    """Integers without a use that shows that they are ids, fed with tokens: the report states that their name decided."""
    nodes = [onnx.node("Cast", ["numbers"], ["x"], to=onnx.FLOAT), onnx.node("MatMul", ["x", "w"], ["p"]), onnx.node("Mul", ["p", "p"], ["s"]), onnx.node("ReduceMean", ["s"], ["loss"], keepdims=0)]
    model, bundle, tokens = os.path.join(folder, "guessed.onnx"), os.path.join(folder, "guessed.zorse"), os.path.join(folder, "tokens.bin")
    with open(model, "wb") as f:
        f.write(onnx.model(nodes, [onnx.tensor("w", (4, 1), [1, 2, 3, 4])], [onnx.value("numbers", ["batch", 4], onnx.INT64)], [onnx.value("loss", [])]))
    np.arange(32, dtype=np.uint16).tofile(tokens)
    z.compile(model, bundle, z.cluster(folder, ["a"]), 2, 0, None, SGD, "f64")
    _, out, err = z.call("zorse-run", bundle, "--eval-only", "--data", tokens, "--data-type", "uint16")
    good = "input 'numbers' is assumed to hold token ids by its name; numbers=FILE.npy" in out + err
    print(f"{'ok  ' if good else 'FAIL'} an input that is assumed to hold ids by its name is named" + ("" if good else f": {out + err}"), flush=True)
    return [good]


def evaluation(folder):
    results, batch = [*ignored(folder), *guessed(folder), *evaluated_in_groups(folder)], 4
    names = dict.fromkeys(TEXTS + BY_STEPS + NUMBERED)
    for name, N in [*((name, 10) for name in names), *((name, N) for name in TEXTS[::3] + BY_STEPS[:3] for N in (9, 2))]:
        form, data = all_forms()[name], tape_functions.data_of(N, 0)
        trial = Trial(folder, form, batch, [data])
        for devices in DEVICES:
            code, said = trial.compile(devices)
            code, said, lines = trial.run("--eval-only") if code == 0 else (code, said, [])
            found = [m["eval_loss"] for m in lines if "eval_loss" in m]
            if not found:
                print(f"FAIL {name}: {form.text}: no evaluation: exit {code}, {judge.error_of(said)[:300]}", flush=True)
                results.append(False)
                break
            error = z.relative(found, [whole(form, data, batch, N)])
            if name in NUMBERED and "8 of 10 samples" not in said:
                print(f"FAIL {name}: the omitted samples are not reported: {said[-200:]}")
                results.append(False)
            results.append(z.check(f"{name}: {form.text}: {N} samples in batches of {batch} on {len(devices)} devices", error, judge.LIMIT))
    few = Trial(folder, all_forms()[NUMBERED[0]], batch, [tape_functions.data_of(batch - 1, 0)])
    few.compile()
    code, said, _ = few.run("--eval-only")
    good = code == 1 and f"the evaluation data has {batch - 1} samples" in said and "--global-batch-size" in said
    print(f"{'ok  ' if good else 'FAIL'} less than a step of a loss that reads numbers of samples is refused" + ("" if good else f": {said[-300:]}"), flush=True)
    return results + [good]


def main():
    parts = {"bad": bad, "groups": groups, "python": python, "evaluation": evaluation}
    kinds, results = sys.argv[1:] or list(parts), []
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            results += parts[kind](folder)
    z.finish(results)


if __name__ == "__main__":
    main()
