"""Models that are formally valid and odd in size: chains of many nodes, names of megabytes, tensors larger than any
memory, checkpoints with many tensors. Each is compiled, or refused with exit code 1 and an error, in time linear in
its size; nothing aborts.

    odd_models.py [--nodes 60000] [--tensors 20000]
"""
import argparse
import json
import os
import random
import resource
import subprocess
import tempfile
import time

import harness as z
import onnx_file as onnx

GIB = 1 << 30


class Odd:
    def __init__(self, folder):
        self.folder, self.results = folder, []
        self.cluster = z.cluster(folder, ["a"])

    def write(self, name, data):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def call(self, name, words, seconds, codes=(0, 1), says="", memory=12):
        begin = time.monotonic()
        words = [os.path.join(z.BIN, words[0])] + [str(w) for w in words[1:]]
        limit = None if z.SANITIZED else lambda: resource.setrlimit(resource.RLIMIT_DATA, (memory * GIB, memory * GIB))
        try:
            done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=seconds * z.PATIENCE, preexec_fn=limit)
            code, said = done.returncode, done.stderr + done.stdout
        except subprocess.TimeoutExpired:
            code, said = "no end", ""
        line = next((l for l in said.splitlines() if "error" in l.lower()), "")
        good = code in codes and says in said and (code == 0 or "error" in said.lower()) and len(said) < 20000
        print(f"{'ok  ' if good else 'FAIL'} {name}: {code}, {time.monotonic() - begin:.1f} s, {line[:200]}" + ("" if good else " ... " + said[-300:]), flush=True)
        self.results.append(good)
        return code

    def compile(self, name, model, seconds, codes=(0, 1), says="", more=()):
        path = self.write("odd.onnx", model)
        return self.call(name, ["zorse-compile", path, "--cluster", self.cluster, "--global-batch-size", 4, "--quiet", "-o", os.path.join(self.folder, "odd.zorse"), "--train", "w", *more], seconds, codes, says)


def chain(op, count, first, last, second=None):
    names = [first] + [f"c{i}" for i in range(count - 1)] + [last]
    return [onnx.node(op, [a] + ([second] if second else []), [b]) for a, b in zip(names, names[1:])]


def chains(c, count):
    """Chains of nodes that are computed, folded, or constant."""
    table = onnx.tensor("t", (4,), [0.5, 1, 2, 3])
    c.compile(f"{count} Relu before the weight, up to their units", onnx.regression(chain("Relu", count, "x", "h")), 120, codes=(0,), more=["--compile-to", "units"])
    for op, second in (("Relu", None), ("Neg", None), ("Identity", None), ("Add", "t"), ("Tanh", None)):
        c.compile(f"{count} {op} before the weight", onnx.regression(chain(op, count, "x", "h", second), more=[table] if second else []), 120, codes=(0,), more=["--freeze", "t"] if second else [])
    c.compile(f"{count} Neg of a constant", onnx.regression(chain("Neg", count, "t", "k") + [onnx.node("Add", ["x", "k"], ["h"])], more=[table]), 120, codes=(0,), more=["--freeze", "t"])
    large = onnx.tensor("t", (1, 4), [0.5, 1, 2, 3])
    shape = onnx.tensor("n", (2,), [1 << 17, 4], onnx.INT64)
    nodes = [onnx.node("Expand", ["t", "n"], ["e"])] + chain("Neg", 3000, "e", "k") + [onnx.node("ReduceMax", ["k"], ["m"], keepdims=0), onnx.node("Add", ["x", "m"], ["h"])]
    c.compile("3000 Neg of a constant of 2^19 elements", onnx.regression(nodes, more=[large, shape]), 120, more=["--freeze", "t"])


def sizes(c):
    """A tensor larger than any memory is refused, and the error names the node that needs it."""
    ids = [onnx.node("Cast", ["x"], ["i"], to=onnx.INT64), onnx.node("ReduceMax", ["i"], ["r"], keepdims=0, axes=[1])]
    on = onnx.tensor("o", (2,), [0.0, 1.0])
    for exponent in (40, 62):
        depth = onnx.tensor("n", (), [1 << exponent], onnx.INT64)
        nodes = ids + [onnx.node("OneHot", ["r", "n", "o"], ["one"]), onnx.node("ReduceSum", ["one"], ["sum"], keepdims=0), onnx.node("Add", ["x", "sum"], ["h"])]
        c.compile(f"OneHot of 2^{exponent} classes", onnx.regression(nodes, more=[depth, on]), 60, codes=(1,), says="OneHot")
    for op in ("ConstantOfShape", "Range", "Expand", "Tile", "Pad", "Resize", "TopK", "EyeLike"):
        more, nodes = [onnx.tensor("n", (1,), [1 << 40], onnx.INT64)], []
        if op == "Range":
            more = [onnx.tensor("n", (), [1 << 40], onnx.INT64), onnx.tensor("z", (), [0], onnx.INT64), onnx.tensor("step", (), [1], onnx.INT64)]
            nodes = [onnx.node("Range", ["z", "n", "step"], ["k"])]
        elif op == "ConstantOfShape":
            nodes = [onnx.node(op, ["n"], ["k"])]
        elif op == "EyeLike":
            more = [onnx.tensor("n", (2,), [1 << 21, 1 << 21], onnx.INT64)]
            nodes = [onnx.node("ConstantOfShape", ["n"], ["zeros"]), onnx.node(op, ["zeros"], ["k"])]
        elif op == "TopK":
            nodes = [onnx.node(op, ["x", "n"], ["k", "places"])]
        elif op == "Resize":
            more = [onnx.tensor("n", (2,), [4, 1 << 40], onnx.INT64)]
            nodes = [onnx.node(op, ["x", "", "", "n"], ["k"])]
        else:
            more.append(onnx.tensor("t", (1,), [0.5]))
            if op == "Pad":
                more[0] = onnx.tensor("n", (2,), [0, 1 << 40], onnx.INT64)
            nodes = [onnx.node(op, ["t", "n"], ["k"])]
        nodes += [onnx.node("Cast", ["k"], ["f"], to=onnx.FLOAT), onnx.node("ReduceMax", ["f"], ["m"], keepdims=0), onnx.node("Add", ["x", "m"], ["h"])]
        c.compile(f"{op} to 2^40 elements", onnx.regression(nodes, more=more), 120, more=["--freeze", "t"] if len(more) == 2 else [])
    name = "n" * (50 << 20)
    c.compile("a node's name of 50 MB", onnx.regression([onnx.node("Relu", ["x"], ["h"], name=name)]), 60)
    c.compile("a value's name of 50 MB", onnx.regression([onnx.node("Relu", ["x"], [name]), onnx.node("Neg", [name], ["h"])]), 60)
    c.compile("an operator's name of 50 MB", onnx.regression([onnx.node(name, ["x"], ["h"])]), 60, codes=(1,))
    c.compile("an attribute's name of 50 MB", onnx.regression([onnx.node("Relu", ["x"], ["h"], **{name: 1})]), 60, codes=(1,))
    c.compile("an unknown attribute's text of 50 MB", onnx.regression([onnx.node("Cast", ["x"], ["h"], to=1, round_mode=name)]), 60)
    weights = onnx.tensor(name, (4, 4), [0.01 * i for i in range(16)])
    model = onnx.model([onnx.node("MatMul", ["x", name], ["p"]), onnx.node("Sub", ["p", "y"], ["d"]), onnx.node("Mul", ["d", "d"], ["s"]), onnx.node("ReduceMean", ["s"], ["loss"], keepdims=0)],
                       [weights], [onnx.value("x", ["N", 4]), onnx.value("y", ["N", 4])], [onnx.value("loss", [])])
    path = c.write("odd.onnx", model)
    c.call("a parameter's name of 50 MB", ["zorse-compile", path, "--cluster", c.cluster, "--global-batch-size", 4, "--quiet", "-o", os.path.join(c.folder, "odd.zorse"), "--infer-trainable"], 60)


def unused(c, count):
    """Checkpoints and models with many tensors that the model does not use: linear time."""
    bundle = os.path.join(c.folder, "few.zorse")
    z.call("zorse-compile", c.write("few.onnx", onnx.regression(after="x")), "--cluster", c.cluster, "--global-batch-size", 4, "--quiet", "-o", bundle, "--train", "w")
    header, begin = {"w": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}}, 64
    for i in range(count):
        header[f"block.{i}.weight"] = {"dtype": "F32", "shape": [2], "data_offsets": [begin, begin + 8]}
        begin += 8
    text = json.dumps(header).encode()
    many = c.write("many.safetensors", len(text).to_bytes(8, "little") + text + bytes(begin))
    import odd_files
    data = "x=" + c.write("x.npy", odd_files.npy(8)) + ",y=" + c.write("y.npy", odd_files.npy(8))
    run = ["zorse-run", bundle, "--data", data, "--max-steps", 1, "--quiet", "--load-weights", many]
    c.call(f"--load-weights with {count} tensors of other modules", run, 4, codes=(0,), says="block.10000.weight")
    c.call(f"--load-weights with {count} tensors left out", run + ["--ignore-tensors", "block.*"], 4, codes=(0,))
    more = [onnx.tensor(f"u{i}", (2, 3), [0.0] * 6) for i in range(count)]
    c.compile(f"{count} initializers that nothing reads", onnx.regression(after="x", more=more), 20, codes=(0,))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=60000)
    parser.add_argument("--tensors", type=int, default=20000)
    a = parser.parse_args()
    random.seed(1)
    with tempfile.TemporaryDirectory() as folder:
        c = Odd(folder)
        chains(c, a.nodes)
        sizes(c)
        unused(c, a.tensors)
        z.finish(c.results, f"chains of {a.nodes} nodes, names of 50 MB, tensors of 2^40 elements, checkpoints of {a.tensors} tensors: compiled or refused")


if __name__ == "__main__":
    main()
