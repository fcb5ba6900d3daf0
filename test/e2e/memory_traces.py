"""Checks the timing of memory plans with traces of runs: parameters are copied to the device at most twice per step and
unit, updates overlap with later instructions, and copies overlap with computation.

    memory_traces.py [--quick]     --quick: fewer steps, one number of micro-batches

A model of 17 chunks on one emulated GPU, with everything on the host and the schedule ministages. The GPU has its own
clock, as in overlap.py: functions access memory at one rate, copies run at another, and kernels compute nothing, so that
the machine hardly matters. Updates by the host do compute. Together they take 4 ms per step, hardly longer than waking
the threads that continue in parallel. The limit for their overlap is therefore low; it still shows an error, because
nothing overlaps if the next step waits for all updates. The best of three runs counts.

Plans: updates on the device and by the host, after the last gradient (a separate queue lets the next step's forwards
begin) and group by group (inside the backward). Each plan is compared with its own trace: the fraction of the time of
updates or copies in which the first queue of the device computes something else.
"""
import json
import os
import shutil
import sys
import tempfile

import numpy as np

import cuda
import harness as z
from larger_than_memory import chunks

QUICK = "--quick" in sys.argv
BATCH, LENGTH, STEPS, LEAST, ATTEMPTS = 8, 64, 4 if QUICK else 8, 0.5, 3
UPDATED = {"device": 0.3, "host": 0.02}  # minimum share of the update time that overlaps, by the device that updates
MEMORY_RATE, LINK = 4e8, 8e8  # bytes/s
CLOCK = {"ZORSE_EMULATOR_COMPUTE": "0", "ZORSE_EMULATOR_PACE": str(MEMORY_RATE), "ZORSE_EMULATOR_LINK": str(LINK)}
HOST = {"parameters": "host", "optimizer_states": "host", "gradients": "host", "reshard_after_forward": True}
UNCLIPPED = {**z.ADAMW, "max-grad-norm": "0"}
PLANS = {  # residency, state, work that updates overlap with
    "updates on the device, by step": ([HOST], {}, "FORWARD of the next step"),
    "updates by the host, by step": ([{**HOST, "optimizer": "host"}], {}, "FORWARD of the next step"),
    "updates on the device, by group": ([HOST], {"optimizer_in_backward": True}, "BACKWARD of the step"),
    "updates by the host, by group": ([{**HOST, "optimizer": "host"}], {"optimizer_in_backward": True}, "BACKWARD of the step"),
}


def cluster(folder):
    path = os.path.join(folder, "cluster.yaml")
    with open(path, "w") as f:
        f.write(f"name: paced\nnodes:\n  - name: here\n    pcie: {LINK:g}\n    devices:\n      - {{ name: g0, kind: cuda, arch: emu, flops_per_second: 1e15, half_peak_rows: 0.001, memory_bandwidth: {MEMORY_RATE:g}, "
                "launch_overhead: 0, memory: 2GiB }\n")
    return path


def overlap(spans, others):
    """Seconds of `spans` in which at least one of `others` is active; both are lists of (begin, end)."""
    edges = sorted([(b, 1, 0) for b, e in spans] + [(e, -1, 0) for b, e in spans] + [(b, 0, 1) for b, e in others] + [(e, 0, -1) for b, e in others])
    total, here, there, last = 0.0, 0, 0, 0.0
    for at, mine, theirs in edges:
        total += (at - last) if here > 0 and there > 0 else 0
        here, there, last = here + mine, there + theirs, at
    return total


def traced(bundle, trace):
    """The events of a run under the GPU's clock."""
    os.environ.update(CLOCK)
    z.run(bundle, os.path.join(z.SMALL, "gpt.tokens.bin"), STEPS, extra=("--trace", trace))
    for key in CLOCK:
        del os.environ[key]
    with open(trace) as f:
        return [e for e in json.load(f)["traceEvents"] if e["ph"] == "X"]


def shares(events, follows):
    """The shares of the time of updates and of copies that overlap with `follows` or with computation; seconds of
    updates per step. Only complete steps that are followed by another one count."""
    seen = range(2, STEPS)
    span = lambda e: (e["ts"], e["ts"] + e["dur"])
    computing = {e["tid"] for e in events if e["name"].startswith("F(")}
    units = [e for e in events if e["tid"] in computing and e["cat"] in ("FORWARD", "BACKWARD")]
    updates = [e for e in events if e["name"].startswith("update of") and e["args"]["step"] in seen]
    kind, later = ("BACKWARD", 0) if follows.startswith("BACKWARD") else ("FORWARD", 1)
    behind = sum(overlap([span(e) for e in updates if e["args"]["step"] == s], [span(e) for e in units if e["cat"] == kind and e["args"]["step"] == s + later]) for s in seen)
    total = sum(e["dur"] for e in updates)
    copies = [span(e) for e in events if e["name"].startswith("copy of") and e["args"]["step"] in seen]
    hidden = overlap(copies, [span(e) for e in units]) / max(1e-9, overlap(copies, [(min(b for b, _ in copies), max(e for _, e in copies))]))
    return behind / total, hidden, total / len(seen) / 1e6


def main():
    if not os.path.exists(os.path.join(cuda.STANDIN, "libcuda.so.1")):
        print("needs the emulated GPU: build the target zorse_standin_cuda")
        sys.exit(77)
    os.environ["LD_LIBRARY_PATH"] = cuda.STANDIN + ":" + os.environ.get("LD_LIBRARY_PATH", "")
    results, figures = [], []

    def expect(what, good, found):
        results.append(good)
        print(f"{'ok  ' if good else 'FAIL'} {what}: {found}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "gpt-deep.onnx")
        shutil.copy(os.path.join(z.SMALL, "gpt-deep.onnx"), model)
        np.random.default_rng(1).normal(0, 0.02, 7_400_000).astype(np.float32).tofile(model + ".data")
        for name, (residency, state, follows) in PLANS.items():
            counts, updated = [], UPDATED[residency[0].get("optimizer", "device")]
            for rows in (4,) if QUICK else (4, 2):
                cells = [(u, v, s, s + rows, "g0") for u, v in chunks() for s in range(0, BATCH, rows)]
                bundle, trace = os.path.join(folder, "traced.zorse"), os.path.join(folder, "trace.json")
                plan = z.plan(folder, "traced", BATCH, ["g0"], cells, schedule="breadth_first", offload=residency, **({"state": state} if state else {}))
                z.compile(model, bundle, cluster(folder), BATCH, LENGTH, plan, UNCLIPPED)
                for _ in range(ATTEMPTS):
                    events = traced(bundle, trace)
                    part, hidden, seconds = shares(events, follows)
                    if part >= updated and hidden >= LEAST:
                        break
                fetches = {}
                for e in events:
                    if e["name"].startswith("copy of parameters") and e["name"].endswith("from the host") and e["cat"] in ("GATHER", "BACKWARD") and e["args"]["step"] == 2:
                        fetches[e["name"]] = fetches.get(e["name"], 0) + 1
                counts.append(fetches)
                often = {k: n for k, n in fetches.items() if n > 2 * max(1, k.count(" + ") + 1)}
                expect(f"{name}, micro-batches of {rows}: parameters come at most twice a step and unit", fetches and not often, often or f"{max(fetches.values())} times at most, {len(fetches)} groups")
                expect(f"{name}, micro-batches of {rows}: updates are in progress during {follows}", part >= updated, f"{part:.0%} of {1e3 * seconds:.1f} ms a step")
                expect(f"{name}, micro-batches of {rows}: copies overlap with computation", hidden >= LEAST, f"{hidden:.0%} of their time")
                figures.append((part, hidden))
            if len(counts) > 1:
                expect(f"{name}: number of copies independent of micro-batches", counts[0] == counts[1], len(counts[0]))
    z.finish(results, f"parameters come at most twice a step and unit; of the time of updates at least {min(p for p, _ in figures):.0%} overlaps with the backward (by group) or the next step's forward (by step), "
                      f"of that of copies at least {min(h for _, h in figures):.0%} with computing")


if __name__ == "__main__":
    main()
