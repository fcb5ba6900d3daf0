"""Compares the time of a step by device and class of instruction, executed against simulated: traces that `zorse-run --trace`
wrote of a run and of `--simulate`.

    timelines.py EXECUTED.json SIMULATED.json [--from-step 2]

For the compute thread of each device: seconds of a step in each class of instruction, and the idle time before instructions, by
the class of the dependency that ended last.
"""
import argparse
import collections
import json


def class_of(name):
    for prefix, kind in (("F(", "forward"), ("B(", "backward"), ("W(", "weight gradients"), ("R(", "recompute"), ("sum of the loss", "loss"), ("norm", "norm"), ("clip and check", "clip and check"),
                         ("update", "update"), ("copy", "copy"), ("load", "load"), ("read metrics", "read metrics"), ("send", "transfer"), ("receive", "transfer"), ("gather", "gather"),
                         ("reduction", "reduction"), ("sum over", "sum"), ("broadcast", "broadcast")):
        if name.startswith(prefix):
            return kind
    return "other"


ON_COMPUTE = {"forward", "backward", "weight gradients", "recompute", "loss", "norm", "clip and check", "update", "copy", "load", "read metrics"}


def read(path, first):
    """device -> step -> [(begin, end, class, instruction)] in seconds; names of devices"""
    with open(path) as f:
        events = json.load(f)["traceEvents"]
    names = {e["pid"]: e["args"]["name"].split(" ", 1)[1] for e in events if e.get("name") == "process_name"}
    found = collections.defaultdict(list)
    steps = set()
    for e in events:
        if e["ph"] == "X":
            steps.add(e["args"]["step"])
            found[e["pid"]].append((e["ts"] * 1e-6, (e["ts"] + e["dur"]) * 1e-6, class_of(e["name"]), e["args"]["step"]))
    return {names[d]: sorted(v) for d, v in found.items()}, sorted(s for s in steps if s >= first)


def summary(path, first):
    """device -> class -> seconds per step: compute classes, and 'idle: class' by the dependency that ended last"""
    events, steps = read(path, first)
    result = {}
    for device, list_ in events.items():
        sums = collections.Counter()
        compute = [e for e in list_ if e[2] in ON_COMPUTE]
        others = sorted((e[1], e[2]) for e in list_ if e[2] not in ON_COMPUTE)
        at = None
        for begin, end, kind, step in compute:
            if step in steps:
                sums[kind] += end - begin
                if at is not None and begin > at:
                    ended = [k for t, k in others if at - 1e-6 < t <= begin + 1e-4]
                    sums["idle: " + (ended[-1] if ended else "nothing")] += begin - at
            at = end
        result[device] = {k: v / len(steps) for k, v in sums.items()}
    return result


def compare(executed, simulated, first=2, out=print):
    a, b = summary(executed, first), summary(simulated, first)
    totals = collections.defaultdict(lambda: [0.0, 0.0])
    for device in a:
        kinds = sorted(set(a[device]) | set(b[device]), key=lambda k: (k.startswith("idle"), -max(a[device].get(k, 0), b[device].get(k, 0))))
        for kind in kinds:
            x, y = a[device].get(kind, 0), b[device].get(kind, 0)
            totals[kind][0] += x
            totals[kind][1] += y
            if max(x, y) > 2e-3:
                out(f"  {device:6} {kind:20} executed {x * 1e3:9.1f} ms  simulated {y * 1e3:9.1f} ms  {(x - y) * 1e3:+8.1f} ms" + (f" {y / x - 1:+7.1%}" if x else ""))
    return totals


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("executed")
    parser.add_argument("simulated")
    parser.add_argument("--from-step", type=int, default=2)
    a = parser.parse_args()
    compare(a.executed, a.simulated, a.from_step)
