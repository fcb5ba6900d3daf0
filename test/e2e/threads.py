"""Every assignment of a bundle to threads trains bit-identically: a thread per device, a thread per queue, with trace,
evaluation and dumps.

    threads.py [STEPS]     default 3

ZORSE_RUN names another zorse-run than ZORSE_BIN's: tools/run-sanitizers.sh tsan sets the one built with
ThreadSanitizer, which fails at the first race.
"""
import json
import os
import sys
import tempfile

import harness as z
from plan_invariance import BATCH, LENGTH, plans


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    program = os.environ.get("ZORSE_RUN", os.path.join(z.BIN, "zorse-run"))
    data = os.path.join(z.SMALL, "gpt.tokens.bin")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        def train(bundle, *more):
            metrics = os.path.join(folder, "metrics.jsonl")
            z.call(program, bundle, "--data", data, "--max-steps", steps, "--metrics-file", metrics, *more)
            with open(metrics) as f:
                return [m["loss"] for m in map(json.loads, f) if "loss" in m]

        for name, (devices, cells, more) in plans().items():
            bundle, cluster = os.path.join(folder, name + ".zorse"), z.cluster(folder, devices)
            with open(cluster) as f:
                text = f.read()
            with open(cluster, "w") as f:  # two threads for the first device, which split its kernels
                f.write(text.replace("threads: 1", "threads: 2", 1))
            z.compile(os.path.join(z.SMALL, "gpt.onnx"), bundle, cluster, BATCH, LENGTH, z.plan(folder, name, BATCH, devices, cells, **more))
            out = [os.path.join(folder, "out" + s) for s in ("trace", "gradients", "checkpoint", "memory", "rows")]
            plain = train(bundle)
            ways = {"a thread per queue": train(bundle, "--thread-per-queue"),
                    "evaluation, trace, dumps": train(bundle, "--eval-data", data, "--eval-interval", 2, "--eval-iters", 2, "--trace", out[0], "--dump-gradients", out[1],
                                                      "--save-weights", out[2], "--memory-report", out[3], "--dump-losses", out[4])}
            for way, got in ways.items():
                good = got == plain and len(plain) == steps
                results.append(good)
                print(f"{'ok  ' if good else 'FAIL'} {name}: {way}", flush=True)
    z.finish(results)


if __name__ == "__main__":
    main()
