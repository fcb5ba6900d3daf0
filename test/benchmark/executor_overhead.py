"""Overhead of the executor per task: the time of a step outside the work of its instructions, per instruction, on one device with
many small cells.

Steps overlap, so the time of a step is measured from the end of the previous step to its own end. The limit applies to
the median of the steps; the minimum is also printed.

    executor_overhead.py [--limit 10]     microseconds
"""
import argparse
import collections
import json
import os
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import harness as z

parser = argparse.ArgumentParser()
parser.add_argument("--limit", type=float, default=10.0)
a = parser.parse_args()
with tempfile.TemporaryDirectory() as folder:
    model, batch = os.path.join(z.SMALL, "gpt-tiny-dropout.onnx"), 64
    cells = [(u, v, s, s + 1, "a") for s in range(batch) for u, v in ((0, 2), (2, 4), (4, 6))]
    bundle, trace = os.path.join(folder, "many.zorse"), os.path.join(folder, "trace.json")
    z.compile(model, bundle, z.cluster(folder, ["a"]), batch, 8, z.plan(folder, "many", batch, "a", cells))
    text = os.path.join(folder, "text.bin")
    with open(text, "wb") as f:
        f.write(b"".join(bytes(((i * i) % 31, 0)) for i in range(20000)))
    z.run(bundle, text, 12, extra=("--trace", trace, "--trace-steps", 12))
    with open(trace) as f:
        events = [e for e in json.load(f)["traceEvents"] if e.get("ph") == "X"]
    steps = collections.defaultdict(list)
    for e in events:
        steps[e["args"]["step"]].append(e)
    ends = {step: max(x["ts"] + x["dur"] for x in e) for step, e in steps.items()}
    figures = [(ends[step] - ends[step - 1] - sum(x["dur"] for x in steps[step])) / len(steps[step]) for step in sorted(steps)[2:]]
    figure = statistics.median(figures)
    print(f"{len(steps[max(steps)])} instructions a step, executor overhead {figure:.2f} us per instruction, least {min(figures):.2f} (limit {a.limit:g})")
    sys.exit(0 if figure <= a.limit else 1)
