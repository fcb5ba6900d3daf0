"""Checks the order of streams, events and copies on emulated GPUs, under random plans: stream-runs (test/runtime)
trains each plan with random delays, and with mutants.

    streams.py [--quick] [COUNT] [DELAYS] [MUTANTS]
                                                                     [FIRST PLAN]     per plan; default 32 plans, 32
                                                                     delays, 16 mutants; --quick: 3, 4, 12

A plan has one to three emulated GPUs, with or without a CPU, random boundaries of units and samples, and shares of
state. Every third plan splits the backward. Every memory access of streams and host transports is checked with vector
clocks, so that a missing order is detected whatever the actual order of execution.
"""
import os
import re
import sys
import tempfile
import time

import cuda
import harness as z

LENGTH = 8


def main():
    quick = "--quick" in sys.argv
    numbers = [int(w) for w in sys.argv[1:] if w.isdigit()]
    count, delays, mutants, first = numbers + list(((3, 4, 12, 0) if quick else (32, 32, 16, 0))[len(numbers):])
    os.environ["LD_LIBRARY_PATH"] = cuda.STANDIN + ":" + os.environ.get("LD_LIBRARY_PATH", "")
    os.environ["ZORSE_EMULATOR_DEVICES"] = "3"
    model, data = os.path.join(z.SMALL, "gpt.onnx"), os.path.join(z.SMALL, "gpt.bf16.tokens.bin")
    found, tried, failures, start = {}, {}, 0, time.time()
    for seed in range(first, first + count):
        batch, devices, cells, more = cuda.random_plan(seed)
        with tempfile.TemporaryDirectory() as folder:
            bundle = os.path.join(folder, "b.zorse")
            plan = z.plan(folder, "p", batch, devices, cells, **more)
            z.compile(model, bundle, cuda.cluster(folder, devices), batch, LENGTH, plan, {"optimizer": "adamw", "lr": "1e-3", "max-grad-norm": "1.0"}, ("f32", "bf16", "f16")[seed % 3])
            code, out, _ = z.call("stream-runs", bundle, data, delays, mutants, seed * delays, ok=False, timeout=3600)
        for hit, of, kind in re.findall(r"(\d+) of (\d+) ([a-z ]+)", out):
            found[kind] = found.get(kind, 0) + int(hit)
            tried[kind] = tried.get(kind, 0) + int(of)
        failures += code != 0
        if code:
            print(f"plan {seed}: {batch} samples on {', '.join(devices)}: {cells} {more}\n{out}")
        print(f"plan {seed - first + 1} of {count}, {time.time() - start:.0f} s: {out.strip().splitlines()[-1] if out.strip() else code}", flush=True)
    kinds = ", ".join(f"{found[kind]} of {tried[kind]} {kind}" for kind in tried)
    print(f"{count} plans, {count * delays} runs at random delays, the same bits and no finding in {count - failures} plans; mutants found: {sum(found.values())} of {sum(tried.values())} ({kinds})")
    sys.exit(failures != 0)


if __name__ == "__main__":
    main()
