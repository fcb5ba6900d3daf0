"""zorse-opt with the pipeline that zorse-compile prints gives the same result as zorse-compile: the same module with
the same functions and kernels, and the same programs, byte for byte.

    train_pipeline.py [--quick]     --quick: every pair of a model, a precision and a cluster, in half of the cases
"""
import os
import re
import subprocess
import sys
import tempfile

import harness as z

CLUSTERS = {
    "processors": """
name: processors
nodes:
  - name: here
    devices:
      - { name: a, kind: cpu, flops_per_second: 20e9, memory: 1GiB, threads: 1 }
      - { name: b, kind: cpu, flops_per_second: 10e9, memory: 1GiB, threads: 1 }
""",
    "mixed": """
name: mixed
nodes:
  - name: here
    devices:
      - { name: a, kind: cpu, flops_per_second: 20e9, memory: 1GiB, threads: 1 }
      - { name: b, kind: cuda, arch: sm_90, flops_per_second: 8e12, memory: 16GiB }
      - { name: c, kind: cuda, arch: sm_80, flops_per_second: 19e12, memory: 40GiB }
      - { name: d, kind: cuda, arch: sm_80, flops_per_second: 19e12, memory: 40GiB }
""",
}
PRECISIONS = ("f32", "bf16", "f16")
MODELS = [("gpt.onnx", ["--seq-length=32"]), ("llama.onnx", ["--seq-length=32"]), ("mlp-tiny.onnx", ["--seq-length=16"]), ("gpt-tiny-dropout.onnx", ["--seq-length=16"])]


def call(tool, *words):
    done = subprocess.run([os.path.join(z.BIN, tool), *words], capture_output=True, text=True)
    if done.returncode:
        raise z.Failure(f"{tool} {' '.join(words)[:200]}: {done.stderr[-400:]}")
    return done.stdout


def lines_of(path):
    """The module's lines, with the values of every function numbered in textual order: names come from locations, and
    for equal ops it does not matter whose name is used."""
    numbers, lines = {}, []
    with open(path) as f:
        for line in f.read().splitlines():
            if "func @" in line:
                numbers = {}
            lines.append(re.sub(r"%[\w.$-]+", lambda name: numbers.setdefault(name.group(), f"%{len(numbers)}"), line))
    return lines


def compare(folder, model, words, precision, cluster, more=()):
    """(the first line that differs or None, number of kernels)"""
    source = os.path.join(z.SMALL, model)
    graph, made, dump = os.path.join(folder, "graph.mlir"), os.path.join(folder, "made.mlir"), os.path.join(folder, "dump")
    with open(graph, "w") as f:
        f.write(call("zorse-import", source, "--full", *words))
    flags = [source, "--global-batch-size", "8", *[word.replace("=", " ") for word in words], "--precision", precision, "--cluster", cluster, "--quiet", *more]
    flags = [part for word in flags for part in (word.split(" ") if word.startswith("--seq-length") else [word])]
    call("zorse-compile", *flags, "--compile-to", "plan", "--dump-dir", dump)
    flags += ["--plan", os.path.join(dump, "5-plan.json")]
    programs = call("zorse-compile", *flags, "--emit", "exec").splitlines()
    pipeline = call("zorse-compile", *flags, "--emit", "pipeline").strip()
    call("zorse-compile", *flags, "--compile-to", "plan", "--dump-dir", dump)
    functions, rest = re.split(r",zorse-plan(?:\{[^}]*\})?,", pipeline)
    call("zorse-opt", graph, f"--pass-pipeline={functions})", "--mlir-use-nameloc-as-prefix", "--mlir-elide-elementsattrs-if-larger=32", "-o", made)
    shown = call("zorse-opt", made, f"--pass-pipeline=builtin.module(zorse-plan,{rest[:-1]},zorse-show-programs)", "-o", os.devnull).splitlines()
    if [line.strip() for line in shown if line] != [line.strip() for line in programs if line]:
        return "programs are others", 0
    ours, theirs = lines_of(made), lines_of(os.path.join(dump, "4-lower.mlir"))
    kernels = sum(line.startswith("    module @") or line.startswith("    builtin.module @") for line in ours)
    for number, (one, two) in enumerate(zip(ours, theirs), 1):
        if one != two:
            return f"line {number}: {one.strip()[:100]} | {two.strip()[:100]}", kernels
    return None if len(ours) == len(theirs) else f"{len(ours)} and {len(theirs)} lines", kernels


def main():
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, text in CLUSTERS.items():
            with open(os.path.join(folder, name + ".yaml"), "w") as f:
                f.write(text)
        cases = [(model, words, precision, cluster, ()) for m, (model, words) in enumerate(MODELS) for p, precision in enumerate(PRECISIONS) for c, cluster in enumerate(CLUSTERS)
                 if (m + p + c) % 2 or "--quick" not in sys.argv]
        cases.append(("gpt.onnx", ["--seq-length=32"], "f32", "processors", ("--optimizer", "sgd", "--momentum", "0.9", "--weight-decay-params", "names:attn,mlp")))
        for model, words, precision, cluster, more in cases:
            difference, kernels = compare(folder, model, words, precision, os.path.join(folder, cluster + ".yaml"), more)
            label = f"{model} {precision} {cluster}{' ' + ' '.join(more) if more else ''}: {kernels} kernels"
            results.append(z.check(label + (f", {difference}" if difference else ""), float(difference is not None or kernels == 0), 0))
    z.finish(results)


if __name__ == "__main__":
    main()
