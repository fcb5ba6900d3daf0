"""Transfers and reductions run beside computing, as the program says: traces of emulated GPUs on a clock of their own against the simulated step.

    overlap.py [--quick]     two plans, directly from GPU to GPU and by way of the host; --quick: one plan, directly

Every piece of work on a stream of the emulated GPUs takes as long as its bytes at one rate (ZORSE_EMULATOR_PACE), which is far slower than the machine emulates; the plan is made for that rate, and
the GPUs' own events say when work began and ended. Of all seconds in which bytes move to or from a device, some fall into seconds in which it computes: in the run at least 0.75 of what the
simulated step has. (In all more seconds are moved than planned where GPUs exchange directly: the stand-in for NCCL takes its time for reading and for writing, and sums arrive before they are added.)
"""
import json
import os
import sys
import tempfile

import cuda
import harness as z

RATE = 3e7  # bytes/s of all memory; links have half of it
BATCH, LENGTH, STEPS, SKIPPED = 16, 32, 3, 1
PLANS = {
    "two stages of two GPUs": (["g0", "g1", "g2", "g3"], [(u, v, s, s + 2, g) for u, v, pair in ((0, 5, ("g0", "g1")), (5, 8, ("g2", "g3"))) for i, s in enumerate(range(0, BATCH, 2)) for g in (pair[i % 2],)]),
    "shares 10 and 6": (["g0", "g1"], [(0, 8, 0, 5, "g0"), (0, 8, 5, 10, "g0"), (0, 8, 10, 13, "g1"), (0, 8, 13, 16, "g1")]),
}


def cluster(folder, devices):
    path = os.path.join(folder, "cluster.yaml")
    with open(path, "w") as f:
        f.write(f"name: paced\nlinks: {{ intra_node: {{ bandwidth: {RATE / 2:g}, latency: 0 us }} }}\nnodes:\n  - name: here\n    devices:\n")
        for d in devices:
            f.write(f"      - {{ name: {d}, kind: cuda, arch: emu, speed: 1e15, half_rows: 0.001, memory_bandwidth: {RATE:g}, launch: 0, memory: 2GiB }}\n")
    return path


def parts(trace):
    """(seconds in which bytes move, of them while the device computes), summed over devices. Bytes move from when the last of those who take part is there."""
    with open(trace) as f:
        events = json.load(f)["traceEvents"]
    queues = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    moved = hidden = 0.0
    ready = {}
    for e in events:
        if e.get("ph") == "X":
            key = e["args"]["step"], e["args"]["entry"]
            ready[key] = max(ready.get(key, 0.0), e["ts"])
    for device in {pid for pid, _ in queues}:
        computing, moving = [], []
        for e in events:
            if e.get("ph") == "X" and e["pid"] == device and e["args"]["step"] > SKIPPED:
                begin = ready[e["args"]["step"], e["args"]["entry"]]
                (computing if queues[device, e["tid"]].startswith("compute") else moving).append((min(begin, e["ts"] + e["dur"]), e["ts"] + e["dur"]))
        moving = merged(moving)
        moved += sum(end - begin for begin, end in moving)
        computing = merged(computing)
        hidden += sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in moving for b in computing)
    return moved / 1e6, hidden / 1e6


def merged(intervals):
    result = []
    for begin, end in sorted(intervals):
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((begin, end))
    return result


def trace_of(folder, bundle, *words):
    trace = os.path.join(folder, "trace.json")
    z.call("zorse-run", bundle, "--steps", STEPS, "--trace", trace, "--trace-steps", STEPS, *words)
    return parts(trace)


def main():
    quick = "--quick" in sys.argv
    os.environ["LD_LIBRARY_PATH"] = cuda.STANDIN
    os.environ["ZORSE_EMULATOR_DEVICES"] = "4"
    least, lines = 10.0, []
    with tempfile.TemporaryDirectory() as folder:
        for name, (devices, cells) in list(PLANS.items())[:1 if quick else None]:
            bundle = os.path.join(folder, f"{len(devices)}.zorse")
            plan = z.plan(folder, f"p{len(devices)}", BATCH, devices, cells, schedule={"name": "timed"}, split_backward=True)
            z.compile(os.path.join(z.SMALL, "gpt.onnx"), bundle, cluster(folder, devices), BATCH, LENGTH, plan)
            for how in ([],) if quick else ([], ["--staged"]):
                planned, beside = trace_of(folder, bundle, "--simulate", *how)
                os.environ["ZORSE_EMULATOR_PACE"] = str(RATE)
                data = ["--data", os.path.join(z.SMALL, "gpt.bf16.tokens.bin"), "--threads", *how]
                moved, hidden = trace_of(folder, bundle, *data)
                del os.environ["ZORSE_EMULATOR_PACE"]
                least = min(least, hidden / beside)
                lines.append(f"{name}{', by way of the host' if how else ''}: {hidden:.3f} s of {moved:.2f} beside computing, planned {beside:.3f} of {planned:.2f}")
                print(lines[-1], flush=True)
    print(f"seconds of transfers beside computing: at least {least:.2f} of what is planned (limit 0.75); " + "; ".join(lines))
    sys.exit(0 if least >= 0.75 else 1)


if __name__ == "__main__":
    main()
