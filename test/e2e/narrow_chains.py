"""Operators on 16-bit tensors inside an f32 model: every result, every gradient and every sum of gradients is rounded
as in PyTorch.

    narrow_chains.py

Random chains between a cast to bf16 or f16 and a cast back are trained for two steps in f64, on one device and on two
with uneven cells. The reference computes the same with numpy and rounds after every operator: in its forward, in its
backward, and wherever the gradients of several readers are added, in the order of PyTorch's autograd. (PyTorch gives
the same bits for the operators here. If PyTorch composes a gradient of several operators, such as the gradient of sin
from a cosine and a product, it rounds in between, and Zorse rounds once.)
"""
import os
import random
import tempfile

import numpy as np

import harness as z
import onnx_file as onnx

KINDS = {"bf16": (16, 8, -1000), "f16": (10, 11, -13)}  # ONNX type, digits, minimum exponent of a normal number
RATE, BATCH, WIDTH, DEPTH, CHAINS, LIMIT = 0.25, 4, 6, 7, 8, 1e-12


def rounded(x, kind):
    _, digits, least = KINDS[kind]
    unit = np.maximum(np.frexp(x)[1], least) - digits
    return np.ldexp(np.rint(np.ldexp(x, -unit)), unit)


OPERATORS = {  # forward, and the gradients of the operands by (g, operands..., result)
    "Tanh": (np.tanh, [lambda g, a, y: g * (1 - y * y)]),
    "Exp": (np.exp, [lambda g, a, y: g * y]),
    "Relu": (lambda a: np.maximum(a, 0), [lambda g, a, y: g * (a > 0)]),
    "Neg": (np.negative, [lambda g, a, y: -g]),
    "Mul": (np.multiply, [lambda g, a, b, y: g * b, lambda g, a, b, y: g * a]),
    "Add": (np.add, [lambda g, a, b, y: g, lambda g, a, b, y: g]),
    "Sub": (np.subtract, [lambda g, a, b, y: g, lambda g, a, b, y: -g]),
}


class Chain:
    """Operators on numbered values; 0 is the result of the cast. Every value has a reader."""

    def __init__(self, seed):
        choose = random.Random(seed)
        self.steps = []
        for k in range(DEPTH):
            name = choose.choice(list(OPERATORS))
            if k and self.steps[-1][0] == "Exp":
                name = "Tanh"  # bounds the values
            others = [choose.randrange(k + 1) for _ in OPERATORS[name][1][1:]]
            self.steps.append((name, [k, *others]))

    def nodes(self, kind):
        made = [onnx.node("MatMul", ["x", "w"], ["p"]), onnx.node("Cast", ["p"], ["v0"], to=KINDS[kind][0])]
        made += [onnx.node(name, [f"v{i}" for i in operands], [f"v{k + 1}"]) for k, (name, operands) in enumerate(self.steps)]
        made += [onnx.node("Cast", [f"v{DEPTH}"], ["wide"], to=onnx.FLOAT), onnx.node("Sub", ["wide", "y"], ["d"]), onnx.node("Mul", ["d", "d"], ["s"])]
        return made + [onnx.node("ReduceMean", ["s"], ["loss"], keepdims=0)]

    def step(self, w, x, y, kind):
        """The loss, and the gradient of w."""
        near = lambda a: rounded(a, kind)
        values = [near(x @ w)]
        for name, operands in self.steps:
            values.append(near(OPERATORS[name][0](*[values[i] for i in operands])))
        left = values[-1] - y
        gradients = {DEPTH: near(2 * left / left.size)}
        for k in reversed(range(DEPTH)):
            name, operands = self.steps[k]
            for which, i in enumerate(operands):
                g = near(OPERATORS[name][1][which](gradients[k + 1], *[values[j] for j in operands], values[k + 1]))
                gradients[i] = near(gradients[i] + g) if i in gradients else g
        return float((left**2).mean()), x.T @ gradients[0]


def main():
    results, rng = [], np.random.default_rng(5)
    weight = (rng.integers(-16, 17, (WIDTH, WIDTH)) / 16).astype(np.float32).astype(np.float64)
    x, y = rng.normal(size=(2 * BATCH, WIDTH)), rng.normal(size=(2 * BATCH, WIDTH))
    with tempfile.TemporaryDirectory() as folder:
        model, bundle, saved = (os.path.join(folder, name) for name in ("chain.onnx", "chain.zorse", "chain.safetensors"))
        for name, array in (("x", x), ("y", y)):
            np.save(os.path.join(folder, name + ".npy"), array)
        for seed in range(CHAINS):
            chain, kind = Chain(seed), list(KINDS)[seed % 2]
            inputs = [onnx.value("x", ["batch", WIDTH]), onnx.value("y", ["batch", WIDTH])]
            with open(model, "wb") as f:
                f.write(onnx.model(chain.nodes(kind), [onnx.tensor("w", weight.shape, weight.ravel().tolist())], inputs, [onnx.value("loss", [])]))
            w, expected = weight, []
            for k in (0, 1):
                rows = slice(k * BATCH, (k + 1) * BATCH)
                loss, gradient = chain.step(w, x[rows], y[rows], kind)
                w, expected = w - RATE * gradient, [*expected, loss]
            for devices, cells in ((["a"], None), (["a", "b"], [(0, 1, 0, 1, "a"), (0, 1, 1, 4, "b")])):
                plan = cells and z.plan(folder, "chain", BATCH, devices, cells)
                z.compile(model, bundle, z.cluster(folder, devices), BATCH, 0, plan, {"optimizer": "sgd", "lr": str(RATE), "max-grad-norm": "0", "lr-scheduler-type": "constant"}, "f64")
                found = z.run(bundle, f"x={folder}/x.npy,y={folder}/y.npy", 2, checkpoint=saved)
                what = f"{' '.join(name for name, _ in chain.steps)} in {kind}, {len(devices)} devices"
                results.append(z.check(f"{what}: losses", z.relative([m["loss"] for m in found], expected), LIMIT))
                results.append(z.check(f"{what}: the parameter after two steps", float(np.abs(z.safetensors(saved)["w"] - w).max()), LIMIT))
    z.finish(results)


if __name__ == "__main__":
    main()
