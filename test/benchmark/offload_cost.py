"""Cost of keeping moments, or all state, on the host: alternating pairs of runs without and with offload, on one CPU
device with one thread.

    offload_cost.py [--quick] [--pairs 10] [--steps 6] [--limit 0.03]

The model is a GPT of 34 units in 17 chunks with 118 MB of state. A step has 64 samples of 64 tokens, so that the ratio
of compute to state is that of training at real sizes: 35 tokens per step for every 64 parameters. Device memory and
tiling are equal in both runs. A pair is one run without and one run with offload, in either order. The figure is the
mean over the pairs of (step with) / (step without) - 1, with its 95 % confidence interval (Student). The step time of a
run is its shortest step from the third on: other work on the machine makes steps longer by much more than the measured
difference, and never shorter. The limit applies to moments; the other rows show other costs, from three pairs.
"""
import argparse
import math
import os
import shutil
import statistics
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import harness as z
from larger_than_memory import chunks, cluster

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true", help="only moments, 3 pairs")
parser.add_argument("--pairs", type=int, default=10)
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--rows", type=int, default=16)
parser.add_argument("--limit", type=float, default=0.03)
a = parser.parse_args()
if a.quick:
    a.pairs, a.steps = 3, 5
LENGTH = 64
STUDENT = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 8: 2.365, 10: 2.262, 12: 2.201, 20: 2.093}
KINDS = {
    "moments on the host": [{"optimizer_states": "host"}],
    "all state on the host, updated on the device": [{"parameters": "host", "optimizer_states": "host", "gradients": "host"}],
    "all state on the host, updated there": [{"parameters": "host", "optimizer_states": "host", "optimizer": "host"}],
}


def seconds(metrics):
    return min(m["seconds"] for m in metrics[2:])


def interval(values):
    mean = statistics.mean(values)
    return mean, STUDENT.get(len(values), 2.0) * statistics.stdev(values) / math.sqrt(len(values))


with tempfile.TemporaryDirectory() as folder:
    model = os.path.join(folder, "gpt-deep.onnx")
    shutil.copy(os.path.join(z.SMALL, "gpt-deep.onnx"), model)
    np.random.default_rng(1).normal(0, 0.02, 7_400_000).astype(np.float32).tofile(model + ".data")
    data = os.path.join(folder, "data.bin")
    np.random.default_rng(0).integers(0, 250, a.batch * LENGTH * 4 + 1).astype(np.uint16).tofile(data)
    cells = [(u, v, s, s + a.rows, "c0") for u, v in chunks() for s in range(0, a.batch, a.rows)]

    def bundle(name, residency):
        path = os.path.join(folder, name + ".zorse")
        plan = z.plan(folder, name, a.batch, ["c0"], cells, **({"offload": residency} if residency else {}))
        z.compile(model, path, cluster(folder, "c0", "4GiB"), a.batch, LENGTH, plan)
        return path

    plain, failed, said = bundle("plain", None), False, []
    for number, (kind, residency) in enumerate(KINDS.items()):
        if a.quick and number:
            break
        path, ratios = bundle("tiers", residency), []
        for pair in range(a.pairs if number == 0 else min(a.pairs, 3)):
            order = (plain, path) if pair % 2 == 0 else (path, plain)
            step = {b: seconds(z.run(b, data, a.steps)) for b in order}
            ratios.append(step[path] / step[plain] - 1)
            print(f"{kind}, pair {pair + 1}: {step[plain]:.3f} s without, {step[path]:.3f} s with, {100 * ratios[-1]:+.1f} %", flush=True)
        mean, half = interval(ratios)
        text = f"{kind}: {100 * mean:+.1f} % a step (95 %: {100 * (mean - half):+.1f} to {100 * (mean + half):+.1f}, {len(ratios)} pairs)"
        if number == 0:
            failed = mean > a.limit
            text += f", limit {100 * a.limit:.0f} %"
        print(text, flush=True)
        said.append(text)
print("; ".join(said))
sys.exit(1 if failed else 0)
