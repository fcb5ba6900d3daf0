"""Fraction of zorse-compile's time that verification takes for many devices: a deep, narrow model over stages x
replicas devices.

    verification_cost.py MODEL.onnx [--sequence 64] [--stages 32] [--replicas 16] [--microbatches 40] [--repeat 3] [--limit 0.35] [--seconds 0.5] [--memory-limit 2048]

Prints the seconds by phase that zorse-compile reports, the best of the repetitions, and the fraction without and with
the generation of kernels (phases "lower" and "kernels", once with an empty kernel cache). Fails if the fraction
without kernels, the seconds of verification or the memory (MiB) exceed their limits.
"""
import argparse
import json
import os
import re
import resource
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import harness as z

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--sequence", type=int, default=64)
parser.add_argument("--stages", type=int, default=32)
parser.add_argument("--replicas", type=int, default=16)
parser.add_argument("--microbatches", type=int, default=40)
parser.add_argument("--repeat", type=int, default=3)
parser.add_argument("--num-threads", type=int, default=os.cpu_count())
parser.add_argument("--limit", type=float, default=0.35)
parser.add_argument("--seconds", type=float, default=0.5)
parser.add_argument("--memory-limit", type=int, default=2048)
a = parser.parse_args()
devices = a.stages * a.replicas
batch = a.replicas * a.microbatches


def phases(text):
    return {m[1]: float(m[2]) for m in re.finditer(r"^  (\w+) +([0-9.]+) s  ", text, re.M)}


with tempfile.TemporaryDirectory() as folder:
    cluster = os.path.join(folder, "cluster.yaml")
    with open(cluster, "w") as f:
        f.write("name: many\nnodes:\n")
        for d in range(devices):
            if d % 8 == 0:
                f.write(f"  - name: n{d // 8}\n    devices:\n")
            f.write(f"      - {{ name: d{d}, kind: cpu, flops_per_second: {1e10 * (1 + d % 3)}, memory: 20GiB, threads: 1 }}\n")
    os.environ["ZORSE_CACHE"] = os.path.join(folder, "cache")
    common = ["zorse-compile", a.model, "--cluster", cluster, "--seq-length", a.sequence, "--global-batch-size", batch, "--num-threads", a.threads]
    _, _, text = z.call(*common, "--compile-to=kernels")
    cold = phases(text)["lower"] + phases(text)["kernels"]
    units = int(re.search(r"(\d+) units of", text)[1])
    plan = os.path.join(folder, "plan.json")
    with open(plan, "w") as f:
        json.dump({"global_batch_size": batch, "devices": [f"d{d}" for d in range(devices)], "schedule": "1f1b",
                   "stages": [{"units": [units * s // a.stages, units * (s + 1) // a.stages], "micro_batch_size": 1,
                               "devices": [f"d{s * a.replicas + r}" for r in range(a.replicas)]} for s in range(a.stages)]}, f)
    shares, best = [], {}
    for i in range(a.repeat):
        _, _, text = z.call(*common, "--plan", plan, "-o", os.path.join(folder, "out.zorse"))
        seconds = phases(text)
        seconds.pop("lower")
        seconds.pop("kernels")
        total = sum(seconds.values())
        shares.append((seconds["verify"] / total, seconds["verify"] / (total + cold)))
        best = {p: min(s, best.get(p, s)) for p, s in seconds.items()}
        if i == 0:
            counts = [re.search(pattern, text)[1] for pattern in (r"(\d+) cells", r"(\d+) instructions", r"programs, (.*)")]
            print(f"{devices} devices, {units} units, {counts[0]} cells, {counts[1]} instructions, {counts[2]} of programs; {a.threads} threads")
        print("  " + ", ".join(f"{p} {s:.2f} s" for p, s in seconds.items()) + f": verification {shares[-1][0]:.1%} of {total:.2f} s", flush=True)
    shares.sort()
    without, together = shares[len(shares) // 2]
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
print(f"kernels, from an empty cache: {cold:.2f} s; best of {a.repeat}: " + ", ".join(f"{p} {s:.2f} s" for p, s in best.items()))
print(f"verification: {best['verify']:.2f} s for {devices} devices (limit {a.seconds:g} s), {without:.1%} of compile time without kernels (limit {a.limit:.0%}), {together:.1%} with them; {memory} MiB at most (limit {a.memory_limit})")
sys.exit(0 if without <= a.limit and best["verify"] <= a.seconds and memory <= a.memory_limit else 1)
