"""Host overhead per instruction of a GPU: CPU time of the whole process per instruction, on emulated GPUs that do nothing.

The stand-in for libcuda skips the work on streams (ZORSE_EMULATOR_IDLE), so the remaining time is the executor's: its
threads go through the program, resolve addresses, call the driver, wait for events and count completed work. The launch
cost of NVIDIA's driver is not included. The figure is the difference between a run of many steps and a run of few,
which excludes start and end. The programs have many small cells, which is the worst case: one GPU alone, and two GPUs
with direct transfers after every cell. The limit applies to the worse of both, each the median of several pairs of
runs. The time of transfers through the host, where host threads synchronize at every transfer, is printed without a
limit.

    gpu_executor_overhead.py [--limit 5]     microseconds
"""
import argparse
import os
import re
import resource
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import cuda
import harness as z

FEW, MANY, PAIRS, BATCH, LENGTH = 20, 220, 9, 64, 8
RANGES = ((0, 2), (2, 4), (4, 6))
CASES = (("one GPU", ("g0",), ()), ("two GPUs, directly", ("g0", "g1"), ()), ("two GPUs through the host", ("g0", "g1"), ("--host-staged",)))


def seconds_of(bundle, data, steps, words):
    """CPU time of a run."""

    def spent():
        use = resource.getrusage(resource.RUSAGE_CHILDREN)
        return use.ru_utime + use.ru_stime

    before = spent()
    _, said, _ = z.call("zorse-run", bundle, "--data", data, "--max-steps", steps, "--in-process", *words)
    losses = set(re.findall(r"loss (\S+)", said))
    if losses != {"0.0000"}:
        raise z.Failure(f"expected losses of 0 from GPUs that compute nothing, found {sorted(losses)[:3]}: is {cuda.STANDIN} built, and in LD_LIBRARY_PATH?")
    return spent() - before


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=float, default=5.0)
    limit = parser.parse_args().limit
    os.environ.update(LD_LIBRARY_PATH=cuda.STANDIN, ZORSE_EMULATOR_DEVICES="2", ZORSE_EMULATOR_IDLE="1")
    judged, figures = [], []
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text.bin")
        with open(text, "wb") as f:
            f.write(b"".join(bytes(((i * i) % 31, 0)) for i in range(20000)))
        for name, devices, words in CASES:
            bundle = os.path.join(folder, f"{len(devices)}.zorse")
            if not os.path.exists(bundle):
                cells = [(u, v, s, s + 1, devices[i % len(devices)]) for s in range(BATCH) for i, (u, v) in enumerate(RANGES)]
                plan = z.plan(folder, f"{len(devices)}", BATCH, devices, cells)
                z.compile(os.path.join(z.SMALL, "gpt-tiny-dropout.onnx"), bundle, cuda.cluster(folder, devices), BATCH, LENGTH, plan)
            instructions = int(re.search(r"(\d+) instructions a step", z.call("zorse-run", bundle, "--simulate", *words)[1]).group(1))
            pairs = [(seconds_of(bundle, text, MANY, words) - seconds_of(bundle, text, FEW, words)) / (MANY - FEW) / instructions * 1e6 for _ in range(PAIRS)]
            figure = statistics.median(pairs)
            if not words:
                judged.append(figure)
            figures.append(f"{name} {figure:.2f} us of {instructions} instructions a step" + ("" if not words else " (no limit)"))
            print(f"{figures[-1]}; " + ", ".join(f"{p:.2f}" for p in pairs), flush=True)
    print(f"processor time of the host per instruction: at most {max(judged):.2f} us (limit {limit:g}); " + "; ".join(figures))
    sys.exit(0 if max(judged) <= limit else 1)


if __name__ == "__main__":
    try:
        main()
    except z.Failure as problem:
        sys.exit(f"FAIL {problem}")
