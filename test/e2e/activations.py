"""Measures how much memory activation recomputation and offload save, and how much time they cost, on a deep GPT.

    activations.py recompute|offload [--quick]     --quick: fewer rounds

Memory is the planned memory in bytes; time is the measured step time in seconds. There is one device, and all forwards
run before the first backward, so that the maximum number of activations is alive. Recomputation has a cell per half
block and micro-batch, offload a cell per block and micro-batch. Losses are bit-identical. The variants run alternately,
and the step time is the minimum over all rounds, because other processes on the machine only make steps longer.
"""
import os
import re
import shutil
import sys
import tempfile

import numpy as np

import harness as z
from larger_than_memory import LENGTH, UNITS, chunks, cluster

QUICK, HOW = "--quick" in sys.argv, next((word for word in sys.argv if word in ("recompute", "offload")), "recompute")
ROWS, CELLS, STEPS, TURNS = 2, 6, 3, 3 if QUICK else 10
MOST_BYTES, MOST_SECONDS = 0.25, 1.22  # relative to a run that keeps all activations


def main():
    batch = ROWS * CELLS
    cells = [(u, v, s, s + ROWS, "a") for u, v in ([(u, u + 1) for u in range(UNITS)] if HOW == "recompute" else chunks()) for s in range(0, batch, ROWS)]
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "gpt-deep.onnx")
        shutil.copy(os.path.join(z.SMALL, "gpt-deep.onnx"), model)
        np.random.default_rng(1).normal(0, 0.02, 7_400_000).astype(np.float32).tofile(model + ".data")
        activations, bundles, losses, seconds = {}, {}, {}, {"keep": [], HOW: []}
        for how in seconds:
            plan = z.plan(folder, how, batch, ["a"], cells, schedule="gpipe", activations=how)
            bundles[how] = os.path.join(folder, how + ".zorse")
            _, _, err = z.compile(model, bundles[how], cluster(folder, "a", 1 << 20), batch, LENGTH, plan, z.ADAMW, ok=False)  # too little memory: the error itemizes it
            number, unit = re.search(r"activations ([0-9.]+) (KiB|MiB|GiB)", err).groups()
            activations[how] = float(number) * {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[unit]
            z.compile(model, bundles[how], cluster(folder, "a", "4GiB"), batch, LENGTH, plan, z.ADAMW)
        for _ in range(TURNS):
            for how in seconds:
                metrics = z.run(bundles[how], os.path.join(z.SMALL, "gpt.tokens.bin"), STEPS + 1)
                losses[how] = [m["loss"] for m in metrics]
                seconds[how].append(min(m["seconds"] for m in metrics[1:]))
        part = activations[HOW] / activations["keep"]
        ratios = sorted(b / a for a, b in zip(seconds["keep"], seconds[HOW]))
        ratio = min(seconds[HOW]) / min(seconds["keep"])
        results = [z.check("activations, as a part of those kept", part, MOST_BYTES), z.check("step, against keeping", ratio, MOST_SECONDS), losses["keep"] == losses[HOW]]
        z.finish(results, f"activations take {part:.3f} of keeping (limit {MOST_BYTES}), a step {ratio:.2f} x (single turns: {ratios[0]:.2f}-{ratios[-1]:.2f}, {TURNS} turns, limit {MOST_SECONDS}), losses equal to every bit")


if __name__ == "__main__":
    main()
