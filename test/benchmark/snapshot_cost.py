"""Cost of snapshots during training, for GPT-2 124M on one CPU device: alternating pairs of runs with and without them
(needs PyTorch to make the model: tools/python-env.sh).

    snapshot_cost.py [--every 10] [--steps 22] [--pairs 3] [--threads 2] [--batch 4] [--sequence 256] [--limit 0.03] [--memory] [--onnx an export made before]

A pair is one run without and one run with snapshots, in either order. The figure is the median over the pairs of (time
of a step with) / (without) - 1, for steps from the third on. A snapshot has 1.5 GB: parameters and two moments in f32.
--memory: they are checkpoints in memory.
The CPU time of the runs is also printed: on a shared machine it varies less.
"""
import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import harness as z

parser = argparse.ArgumentParser()
parser.add_argument("--every", type=int, default=10)
parser.add_argument("--steps", type=int, default=22)
parser.add_argument("--pairs", type=int, default=3)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--sequence", type=int, default=256)
parser.add_argument("--limit", type=float, default=0.03)
parser.add_argument("--memory", action="store_true")
parser.add_argument("--onnx")
a = parser.parse_args()


def seconds(metrics):
    """Time of all steps from the third on, together: the cost of a snapshot may fall on any of them."""
    return sum(m["seconds"] for m in metrics[2:]) / len(metrics[2:])


with tempfile.TemporaryDirectory() as folder:
    model = a.onnx or os.path.join(folder, "model.onnx")
    if not a.onnx:
        subprocess.run([sys.executable, os.path.join(z.ROOT, "models", "make_benchmark.py"), "gpt2-124m", model], check=True, capture_output=True)
    cluster, bundle, data = (os.path.join(folder, n) for n in ("cluster.yaml", "model.zorse", "data.bin"))
    with open(cluster, "w") as f:
        f.write(f"name: one\nnodes:\n  - name: here\n    devices:\n      - {{ name: cpu, kind: cpu, flops_per_second: 1e11, memory: 20GiB, threads: {a.threads} }}\n")
    z.compile(model, bundle, cluster, a.batch, a.sequence, extra=("--weights=reference",))
    np.random.default_rng(0).integers(0, 30000, a.batch * a.sequence * 8 + 1).astype(np.uint16).tofile(data)
    snapshots = os.path.join(folder, "snapshots")

    def run(with_snapshots):
        shutil.rmtree(snapshots, ignore_errors=True)
        # The snapshot of the last step is written after training and does not affect a step.
        storage = a.steps if a.memory else a.every
        extra = ("--checkpoint-dir", snapshots, "--save-interval", storage, "--save-total-limit", 1) if with_snapshots or a.memory else ()
        if with_snapshots and a.memory:
            extra += ("--memory-checkpoint-interval", a.every)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        step = seconds(z.run(bundle, data, a.steps, extra=extra))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return step, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    shares, processor = [], []
    for pair in range(a.pairs):
        order = (False, True) if pair % 2 == 0 else (True, False)
        times = {kind: run(kind) for kind in order}
        shares.append(times[True][0] / times[False][0] - 1)
        processor.append(times[True][1] / times[False][1] - 1)
        count = a.steps // a.every + (a.steps % a.every > 0)
        print(f"pair {pair + 1}: {times[False][0]:.3f} s a step without, {times[True][0]:.3f} s with a snapshot every {a.every}: {100 * shares[-1]:+.2f} %; processor time "
              f"{times[False][1]:.1f} and {times[True][1]:.1f} s: {(times[True][1] - times[False][1]) / count:.2f} s for each of {count}", flush=True)
    figure = statistics.median(shares)
    print(f"{'checkpoints in memory' if a.memory else 'snapshots'} every {a.every} steps: {100 * figure:+.2f} % of a step, processor time {100 * statistics.median(processor):+.2f} % (limit {100 * a.limit:g} %)")
    sys.exit(0 if figure <= a.limit else 1)
