"""PyTorch's loss functions on a tape, the model, and the results of one step: the names that texts of forms use."""
import types

import numpy as np

from losses.forms import MADE, names_in
from losses.judge import Expected, rate_for
from losses.tape import Tape, Value

POSITIONS, CLASSES, WIDTH = 3, 5, 4


def stable(x):
    """(log softmax, softmax) over the last axis."""
    shifted = x - x.max(-1, keepdims=True)
    out = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return out, np.exp(out)


def logp(l):
    out, p = stable(l.data)
    return l.tape.node("LogSoftmax", [l], out, [lambda g: g - p * g.sum(-1, keepdims=True)], axis=-1)


def softmax(l, axis=-1):
    _, p = stable(l.data)
    return l.tape.node("Softmax", [l], p, [lambda g: p * (g - (g * p).sum(-1, keepdims=True))], axis=-1)


def cross_entropy(l, y, reduction="mean", weight=None, ignore_index=-100):
    """Cross-entropy of logits (N, C) and labels (N), or (B, C, T) and (B, T)."""
    rows = np.moveaxis(l.data, 1, -1)
    out, p = stable(rows)
    kept = y.data != ignore_index
    safe = np.where(kept, y.data, 0)
    gain = kept * (weight.data[safe] if weight is not None else 1.0)
    each = -np.take_along_axis(out, safe[..., None], -1)[..., 0] * gain
    divisor = gain.sum() if reduction == "mean" else 1.0
    loss = each if reduction == "none" else each.sum() / divisor

    def gradient(g):
        one = np.zeros(rows.shape)
        np.put_along_axis(one, safe[..., None], 1.0, -1)
        return np.moveaxis((p - one) * (gain * (g if reduction == "none" else g / divisor))[..., None], -1, 1)

    inputs = [l, y] + ([weight] if weight is not None else [])
    return l.tape.node("SoftmaxCrossEntropyLoss", inputs, loss, [gradient], reduction=reduction, ignore_index=ignore_index)


def flat(l, y, **more):
    return cross_entropy(l.flatten(0, 1), y.flatten(), **more)


def total(l, y, **more):
    return flat(l, y, reduction="sum", **more)


def each(l, y, **more):
    return cross_entropy(l.transpose(1, 2), y, reduction="none", **more)


def valid(y):
    return (y != -100).sum()


def square(l, q):
    return ((l - q) ** 2).sum()


def stack(values):
    tape = values[0].tape
    lifted = [v.double()[None] if v.data.ndim else v.double().view(1) for v in values]
    return tape.node("Concat", lifted, np.concatenate([v.data for v in lifted]), [lambda g, k=k: g[k:k + 1] for k in range(len(lifted))], axis=0)


def where(condition, a, b):
    a, b = a.double(), a.tape.lift(b, a)
    c = condition.data
    gradients = [None, lambda g: np.where(c, g, 0), lambda g: np.where(c, 0, g)]
    return a.tape.node("Where", [condition, a, b], np.where(c, a.data, b.data), gradients)


def reduced(value, reduction):
    if reduction == "batchmean":
        return value.sum() / value.shape[0]
    return value if reduction == "none" else value.sum() if reduction == "sum" else value.mean()


def mse_loss(a, b, reduction="mean"):
    return reduced((a - b) ** 2, reduction)


def kl_div(a, b, reduction="mean"):
    return reduced(b * ((b + 2.0**-30).log() - a), reduction)


def logsumexp(l, axis=-1):
    return l.exp().sum(axis).log()


def arange(count):
    """0, 1, ... up to a number of the graph."""
    return count.tape.node("Range", [count.tape.constant(0), count, count.tape.constant(1)], np.arange(int(count.data)))


def size_or(f):
    """A function that takes a value, or a Python number or array."""
    return lambda a, b: f(a, b) if isinstance(a, Value) else f(b, a)


MAXIMUM, MINIMUM = size_or(lambda a, b: a.extreme("Max", b)), size_or(lambda a, b: a.extreme("Min", b))
TORCH = types.SimpleNamespace(exp=Value.exp, log=Value.log, sqrt=Value.sqrt, sigmoid=Value.sigmoid, reciprocal=Value.reciprocal, where=where, stack=stack,
                              logsumexp=logsumexp, maximum=MAXIMUM, minimum=MINIMUM, clamp=Value.clamp, as_tensor=lambda a: a, tensor=lambda a: a, arange=arange)
FUNCTIONS = types.SimpleNamespace(mse_loss=mse_loss, kl_div=kl_div, relu=Value.relu, cross_entropy=cross_entropy, softmax=softmax)
SCOPE = {"torch": TORCH, "F": FUNCTIONS, "flat": flat, "total": total, "each": each, "valid": valid, "square": square, "logp": logp,
         "T": POSITIONS, "C": CLASSES, "max": MAXIMUM, "min": MINIMUM}


def initial():
    rng = np.random.default_rng(3)
    out = {}
    for name, rows, columns in (("body.first", 6, WIDTH), ("body.second", 6, 6), ("body.head", CLASSES, 6), ("other", CLASSES, WIDTH)):
        out[name + ".weight"], out[name + ".bias"] = rng.normal(0, 0.5, (rows, columns)), rng.normal(0, 0.5, rows)
    return {**out, "a": np.asarray(0.3), "b": np.asarray(-0.2), "k": np.linspace(-0.5, 0.5, CLASSES)}


def data_of(B, seed):
    """The number of ignored labels differs between samples, and one sample has no labels."""
    rng = np.random.default_rng(1000 * B + seed)
    y = rng.integers(0, CLASSES, (B, POSITIONS))
    y[rng.random(y.shape) < 0.3] = -100
    y[B // 2] = -100
    y[0, 0], y[-1, -1] = 1, 2
    m = (rng.random((B, POSITIONS)) < 0.6).astype(np.float64)
    m[0, 0] = 1
    q = np.exp(rng.normal(size=(B, POSITIONS, CLASSES)))
    x, u = rng.normal(size=(2, B, POSITIONS, WIDTH))
    w, sw, r = np.abs(rng.normal(size=(B, POSITIONS))) + 0.1, np.abs(rng.normal(size=B)) + 0.1, rng.normal(size=(B, POSITIONS))
    c, at = rng.integers(0, CLASSES, B), rng.integers(0, POSITIONS, B)
    return {"x": x, "u": u, "y": y, "q": q / q.sum(-1, keepdims=True), "w": w, "m": m, "sw": sw, "c": c, "r": r, "at": at}


class Linear:
    def __init__(self, parameters, name):
        self.weight, self.bias = parameters[name + ".weight"], parameters[name + ".bias"]

    def __call__(self, x):
        return x.matmul(self.weight.transpose(0, 1)) + self.bias


class Body:
    """Three layers, so that a plan can split it into stages."""

    def __init__(self, parameters):
        self.first, self.second, self.head = (Linear(parameters, "body." + name) for name in ("first", "second", "head"))

    def __call__(self, x):
        h = self.first(x).tanh()
        return self.head(h + self.second(h).tanh())

    def parameters(self):
        return [p for layer in (self.first, self.second, self.head) for p in (layer.weight, layer.bias)]


def computed(form, parameters, data, seed):
    """(the file, names of its inputs, the loss, its gradients)"""
    tape = Tape(seed)
    p = {name: tape.parameter(name, value) for name, value in parameters.items()}
    module = types.SimpleNamespace(body=Body(p), other=Linear(p, "other"), a=p["a"], b=p["b"], k=p["k"])
    text, used = form.text, names_in(form)
    given = {name: tape.input(name, data[name]) for name in sorted({MADE.get(name, name) for name in used} - {"s"})}
    scope = {**SCOPE, **given, "s": module}
    with np.errstate(all="ignore"):
        if form.section == "forward":
            text = f"x = {text}; l = s.body(x); flat(l, y)" if ";" not in text else text
        elif "l" in used:
            scope["l"] = module.body(given["x"])
        if "p" in used:
            scope["p"] = module.body(given["x"]).mean(1)
        if "v" in used:
            scope["v"] = module.other(given["u"].mean(1))
        *lines, last = [line.strip() for line in text.split(";")]
        for line in lines:
            exec(line, scope)
        loss = eval(last, scope)
        return tape.model(loss), list(given), loss.data, tape.gradients(loss, p)


def reference(form, B, steps, seed=0):
    """(the file, expected results of `steps` steps of B samples)"""
    parameters, batches, losses, first = initial(), [data_of(B, k) for k in range(steps)], [], None
    file, names, *_ = computed(form, parameters, batches[-1], seed)
    for data in batches:
        again, _, loss, gradients = computed(form, parameters, data, seed)
        losses.append(float(loss))
        if first is None:
            first, rate = gradients, rate_for(gradients)
            assert again == file, f"{form.name}: the file depends on its data"
        parameters = {name: p - rate * gradients[name] for name, p in parameters.items()}
    return file, Expected(B, {name: np.concatenate([d[name] for d in batches]) for name in names}, rate, losses, first, parameters)
