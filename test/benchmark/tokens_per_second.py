"""tokens/s of one CPU device against PyTorch eager and torch.compile with the same threads, in alternating runs (needs
PyTorch: tools/python-env.sh).

    tokens_per_second.py [--model gpt2-124m] [--threads 1] [--rounds 2] [--steps 6] [--limit 1.1] [--tuned] [--precision bf16]

Prints every run, then the ratios of the best rates. --tuned also measures PyTorch with an allocator that keeps memory
(higher mmap and trim thresholds). With --precision bf16 PyTorch runs under torch.autocast, and only torch.compile is
compared.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import harness as z

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="gpt2-124m")
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--rounds", type=int, default=2)
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--sequence", type=int, default=256)
parser.add_argument("--limit", type=float, default=1.1)
parser.add_argument("--onnx", help="an existing export")
parser.add_argument("--tuned", action="store_true")
parser.add_argument("--precision", default="f32", choices=["f32", "bf16"])
a = parser.parse_args()


def torch_rate(*extra, environment=None):
    words = [sys.executable, os.path.join(z.ROOT, "test", "benchmark", "torch_step.py"), a.model, "--batch", a.batch, "--sequence", a.sequence, "--threads", a.threads,
             "--steps", a.steps, *(["--autocast"] if a.precision == "bf16" else []), *extra]
    out = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=True, env={**os.environ, **(environment or {})}).stdout
    return float(re.search(r"tokens/s ([\d.]+)", out).group(1))


def zorse_rate(bundle, data):
    metrics = z.run(bundle, data, a.steps)
    return max(m["tokens_per_second"] for m in metrics[2:])


with tempfile.TemporaryDirectory() as folder:
    model = a.onnx or os.path.join(folder, "model.onnx")
    if not a.onnx:
        subprocess.run([sys.executable, os.path.join(z.ROOT, "models", "make_benchmark.py"), a.model, model], check=True, capture_output=True)
    cluster = os.path.join(folder, "cluster.yaml")
    with open(cluster, "w") as f:
        f.write(f"name: one\nnodes:\n  - name: here\n    devices:\n      - {{ name: cpu, kind: cpu, flops_per_second: 1e11, memory: 20GiB, threads: {a.threads} }}\n")
    bundle = os.path.join(folder, "model.zorse")
    z.compile(model, bundle, cluster, a.batch, a.sequence, precision=a.precision, extra=("--weights=reference",))
    data = os.path.join(folder, "data.bin")
    np.random.default_rng(0).integers(0, 30000, a.batch * a.sequence * (a.steps + 1) + 1).astype(np.uint16).tofile(data)
    runs = {"zorse": [], **({"torch eager": []} if a.precision == "f32" else {}), "torch.compile": []}
    tuned = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "8589934592", "MALLOC_TOP_PAD_": "1073741824"}
    for r in range(a.rounds):
        runs["zorse"].append(zorse_rate(bundle, data))
        if a.precision == "f32":
            runs["torch eager"].append(torch_rate())
            runs["zorse"].append(zorse_rate(bundle, data))
        runs["torch.compile"].append(torch_rate("--compile"))
        if a.tuned:
            runs.setdefault("torch.compile, tuned allocator", []).append(torch_rate("--compile", environment=tuned))
        print(f"round {r + 1}: " + ", ".join(f"{k} {v[-1]:.1f}" for k, v in runs.items()), flush=True)
    best = {k: max(v) for k, v in runs.items()}
    ratios = {k: best["zorse"] / v for k, v in best.items() if k != "zorse"}
    print(f"{a.model}, batch {a.batch} x {a.sequence}, {a.precision}, {a.threads} thread(s), tokens/s: " + ", ".join(f"{k} {v:.1f}" for k, v in best.items()))
    print("ratio to " + ", ".join(f"{k}: {v:.2f}" for k, v in ratios.items()))
    sys.exit(0 if min(ratio for name, ratio in ratios.items() if "tuned" not in name) >= a.limit else 1)
