"""Transfers and reductions overlap with computation as planned: compares traces of emulated GPUs, which run on their
own clock, with the simulated step.

    overlap.py [--quick]     two plans, with direct GPU-to-GPU transfers and staged through
                             host memory; --quick: one plan, direct

The emulated clock matches the simulated one. Work on an emulated GPU accesses memory at one rate (ZORSE_EMULATOR_PACE).
A transfer to the host or between GPUs runs at another rate (ZORSE_EMULATOR_LINK), from the time at which every
participant has arrived. The ratio of the two rates is that of a network and GPU memory. Kernels compute nothing
(ZORSE_EMULATOR_COMPUTE=0). The cluster file has the same two rates; the times of functions are profiled on the same GPUs.
If transfers are staged through host memory, the transport between the host's threads takes no time, and none is
simulated (--bandwidth-scale).

Host threads submit the work, and the emulated clock is the wall clock, so a thread that the operating system delays
makes a step longer. A measurement outside its limits is repeated with both rates halved: a host delay is then half as
large a part of the step, and a program error is as large as before. The test fails if the slowest clock (1/4 of the
rates) still shows the difference.

Measured are the seconds in which bytes are transferred to or from a device, and the part of them in which the device
computes, each as the median over the steps. Limits relative to the simulated step:

    moved     within MOVED of the plan. Reductions take longer: if sums are computed on GPUs, the received
              parts are added there, which plans do not count. Between two GPUs this is five times a part's bytes of
              memory, at these rates an eighth of the link time. The rest is waiting of threads on a busy machine.
    hidden    at least HIDDEN of the seconds that are planned to overlap with computation; and a share of the
              transfer time that is at most SHARE below the planned share: a planned overlap must not become waiting.
"""
import json
import os
import statistics
import sys
import tempfile

import cuda
import harness as z

RATE = 4e7  # bytes/s of a GPU's memory, on the fastest clock
LINK = 1 / 40  # relative to RATE: to the host, and each way between GPUs
SLOWER = (1, 2, 4)  # factors of the clocks that are tried
MOVED, HIDDEN, SHARE = (0.95, 1.2), 0.85, 0.05
MEMORY, PROFILED = 24 << 20, 15  # bytes used for profiling, and seconds of rounds if they differ
INSTANT = 1e6  # speedup factor of work that should take no time
BATCH, LENGTH, STEPS, SKIPPED = 16, 32, 6, 1
PLANS = {
    "two stages of two GPUs": (["g0", "g1", "g2", "g3"], [(u, v, s, s + 2, g) for u, v, pair in ((0, 5, ("g0", "g1")), (5, 8, ("g2", "g3"))) for i, s in enumerate(range(0, BATCH, 2)) for g in (pair[i % 2],)]),
    "shares 10 and 6, in two parts": (["g0", "g1"], [(u, v, s, e, g) for u, v in ((0, 4), (4, 8)) for s, e, g in ((0, 5, "g0"), (5, 10, "g0"), (10, 13, "g1"), (13, 16, "g1"))]),
}


def cluster(folder, devices, rate):
    path, link = os.path.join(folder, f"cluster-{len(devices)}.yaml"), rate * LINK
    with open(path, "w") as f:
        f.write(f"name: paced\nlinks: {{ intra_node: {{ bandwidth: {link:g}, latency: 0 us }} }}\nnodes:\n  - name: here\n    pcie: {link:g}\n    devices:\n")
        for d in devices:
            f.write(f"      - {{ name: {d}, kind: cuda, arch: emu, type: emulated, flops_per_second: 1e15, half_peak_rows: 0.001, memory_bandwidth: {rate:g}, launch_overhead: 0, memory: 2GiB }}\n")
    return path


def paced(rate, *words, link=True):
    """Runs a tool on GPUs with a clock. link: transfers take time, too."""
    rates = {"ZORSE_EMULATOR_COMPUTE": "0", "ZORSE_EMULATOR_PACE": str(rate), **({"ZORSE_EMULATOR_LINK": str(rate * LINK)} if link else {})}
    os.environ.update(rates)
    try:
        return z.call(*words)
    finally:
        for name in rates:
            del os.environ[name]


def profile_of(folder, bundle, cells, rate):
    """Profiles the times of functions. Transfer times are in the cluster file."""
    path = os.path.join(folder, "profile.json")
    rows = ",".join(map(str, sorted({end - begin for _, _, begin, end, _ in cells})))
    paced(rate, "zorse-profile", bundle, "-o", path, "--batch-sizes", rows, "--max-seconds", PROFILED, "--no-links", "--device-type", "emulated", "--max-memory", MEMORY, "--quiet", link=False)
    with open(path) as f:
        profile = json.load(f)
    for device in profile["devices"]:
        for key in ("copy", "load"):
            device.pop(key, None)
    with open(path, "w") as f:
        json.dump(profile, f)
    return path


def parts(trace):
    """(seconds in which bytes are transferred, seconds of them in which the device computes) of a step, summed over
    devices; the median over the steps. A transfer starts when its last participant arrives."""
    with open(trace) as f:
        events = json.load(f)["traceEvents"]
    queues = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    events = [e for e in events if e.get("ph") == "X"]
    ready = {}
    for e in events:
        key = e["args"]["step"], e["args"]["entry"]
        ready[key] = max(ready.get(key, 0.0), e["ts"])
    moved, hidden = [0.0] * STEPS, [0.0] * STEPS
    for device in {pid for pid, _ in queues}:
        computing, moving = [], [[] for _ in range(STEPS)]
        for e in events:
            if e["pid"] == device:
                step, end = e["args"]["step"], e["ts"] + e["dur"]  # from 1
                (computing if queues[device, e["tid"]].startswith("compute") else moving[step - 1]).append((min(ready[step, e["args"]["entry"]], end), end))
        computing = merged(computing)
        for step in range(STEPS):
            intervals = merged(moving[step])
            moved[step] += sum(end - begin for begin, end in intervals)
            hidden[step] += sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in intervals for b in computing)
    return statistics.median(moved[SKIPPED:]) / 1e6, statistics.median(hidden[SKIPPED:]) / 1e6


def merged(intervals):
    result = []
    for begin, end in sorted(intervals):
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((begin, end))
    return result


def trace_of(folder, tool, bundle, *words):
    trace = os.path.join(folder, "trace.json")
    tool("zorse-run", bundle, "--simulate-steps" if "--simulate" in words else "--max-steps", STEPS, "--trace", trace, "--trace-steps", STEPS, *words)
    return parts(trace)


def problems_of(what, moved, hidden, planned, covered):
    """Differences between a measured step and the simulated one, in seconds."""
    problems = []
    if not MOVED[0] <= moved / planned <= MOVED[1]:
        problems.append(f"{what}: {moved:.2f} s are moved, expected {MOVED[0]} to {MOVED[1]} of the {planned:.2f} s planned")
    if hidden < HIDDEN * covered:
        problems.append(f"{what}: {hidden:.2f} s overlap with computation, expected {HIDDEN} of the {covered:.2f} s planned")
    if hidden / moved < covered / planned - SHARE:
        problems.append(f"{what}: {hidden / moved:.2f} of what is moved overlaps with computation, expected the {covered / planned:.2f} planned, less {SHARE}")
    return problems


def measured(folder, name, hows, rate):
    """[(what, moved, hidden, planned, covered)] of a plan, on a clock."""
    devices, cells = PLANS[name]
    model, bundle = os.path.join(z.SMALL, "gpt.onnx"), os.path.join(folder, f"{len(devices)}.zorse")
    plan = z.plan(folder, f"p{len(devices)}", BATCH, devices, cells, schedule={"name": "steady_state"}, split_backward=True)
    z.compile(model, bundle, cluster(folder, devices, rate), BATCH, LENGTH, plan)
    profile = profile_of(folder, bundle, cells, rate)
    z.compile(model, bundle, cluster(folder, devices, rate), BATCH, LENGTH, plan, extra=("--profile", profile))
    data, lines = ["--data", os.path.join(z.SMALL, "gpt.bf16.tokens.bin"), "--in-process"], []
    for how in hows:
        planned, covered = trace_of(folder, z.call, bundle, "--simulate", *how, *(["--bandwidth-scale", INSTANT] if how else []))
        what = name + (", through the host" if how else "")
        moved, hidden = trace_of(folder, lambda *words: paced(rate, *words), bundle, *data, *how)
        print(f"{what}: {hidden:.2f} s of {moved:.2f} overlap with computation, planned {covered:.2f} of {planned:.2f}", flush=True)
        lines.append((what, moved, hidden, planned, covered))
    return lines


def main():
    quick = "--quick" in sys.argv
    os.environ["LD_LIBRARY_PATH"] = cuda.STANDIN
    os.environ["ZORSE_EMULATOR_DEVICES"] = "4"
    problems, lines = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name in list(PLANS)[:1 if quick else None]:
            for slower in SLOWER:
                found = measured(folder, name, ([],) if quick else ([], ["--host-staged"]), RATE / slower)
                wrong = [problem for line in found for problem in problems_of(*line)]
                if not wrong:
                    break
                print(*wrong, sep="\n", flush=True)
            lines += found
            problems += wrong
    for line in problems:
        print("FAIL", line)
    moved = [m / p for _, m, _, p, _ in lines]
    print(f"emulated over simulated seconds of a step: moved {min(moved):.2f} to {max(moved):.2f} (limits {MOVED[0]} and {MOVED[1]}), overlapping with computation at least {min(h / b for _, _, h, _, b in lines):.2f} (limit {HIDDEN}); "
          f"their share at most {max(b / p - h / m for _, m, h, p, b in lines):.2f} less (limit {SHARE}); "
          + "; ".join(f"{what}: {h:.2f} s of {m:.2f}, planned {b:.2f} of {p:.2f}" for what, m, h, p, b in lines))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
