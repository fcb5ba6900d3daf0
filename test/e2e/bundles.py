"""Checks the contents of bundles: kernels do not depend on row counts, and memory use is the planned one.

    bundles.py kernels | memory
"""
import hashlib
import json
import os
import re
import sys
import tempfile

import harness as z

GPT, DATA = os.path.join(z.SMALL, "gpt.onnx"), os.path.join(z.SMALL, "gpt.tokens.bin")


def kernel_files(bundle):
    out = {}
    for folder, _, names in os.walk(os.path.join(bundle, "kernels")):
        for name in names:
            with open(os.path.join(folder, name), "rb") as f:
                out[os.path.relpath(os.path.join(folder, name), bundle)] = hashlib.sha256(f.read()).hexdigest()
    return out


def kernels(folder):
    """Cells of 1, 2, 3, 4 and 7 rows have byte-identical kernels to cells of one row count."""
    names = list("abcde")
    batch, cells, at = 17, [], 0
    for name, rows in zip(names, (1, 2, 3, 4, 7)):
        cells.append((0, 8, at, at + rows, name))
        at += rows
    many, one = os.path.join(folder, "many.zorse"), os.path.join(folder, "one.zorse")
    z.compile(GPT, many, z.cluster(folder, names), batch, 32, z.plan(folder, "many", batch, names, cells))
    z.compile(GPT, one, z.cluster(folder, ["a"]), batch, 32, z.plan(folder, "one", batch, ["a"], [(0, 8, 0, batch, "a")]))
    good = kernel_files(many) == kernel_files(one) and bool(kernel_files(one))
    print(f"{'ok  ' if good else 'FAIL'} kernels with cells of 1, 2, 3, 4 and 7 rows = kernels of one cell: {len(kernel_files(many))} file(s)")
    return [good]


def memory(folder):
    """The touched arena bytes (poisoned pages) are between 0.95 of the plan and the plan; the process stays within the
    plan + a stated reserve."""
    results = []
    for model in ("gpt", "llama"):
        path = os.path.join(z.SMALL, model + ".onnx")
        bundle = os.path.join(folder, model + ".zorse")
        cells = [(0, 4, s, s + 16, "a") for s in (0, 16)] + [(4, 8, 0, 20, "b"), (4, 8, 20, 32, "c")]
        z.compile(path, bundle, z.cluster(folder, ["a", "b", "c"]), 32, 32, z.plan(folder, model, 32, ["a", "b", "c"], cells))
        report = os.path.join(folder, "memory.json")
        z.run(bundle, os.path.join(z.SMALL, model + ".tokens.bin"), 2, extra=("--poison", "--memory-report", report))
        with open(report) as f:
            m = json.load(f)
        for device in m["devices"]:
            share = device["touched_bytes"] / device["planned_bytes"]
            good = 0.95 <= share <= 1.0
            results.append(good)
            print(f"{'ok  ' if good else 'FAIL'} {model} device {device['name']}: touched {share:.3f} of the planned {device['planned_bytes'] / 2**20:.1f} MiB")
        planned = sum(d["planned_bytes"] for d in m["devices"])
        extra = m["process_bytes"] - m["empty_executor_bytes"] - planned
        results.append(z.check(f"{model}: process memory beyond an empty executor and the plan, MiB", extra / 2**20, m["reserve_bytes"] / 2**20))
    return results


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        z.finish({"kernels": kernels, "memory": memory}[sys.argv[1]](where))
