"""A two-stage pipeline on two cores against the bound of its schedule, with task times measured while both stages run.

    pipeline_bound.py [--limit 0.90] [--steps 12] [--processes]     --processes: a process per stage, Gloo between them

The bound replays every device's compute tasks in their order with their measured durations (the median over the steps),
with free links and only the dependencies of the model: F of a cell after F of the cells before it, B after B of the
cells after it. Prints bound / measured step time.
"""
import argparse
import collections
import json
import os
import re
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import harness as z

parser = argparse.ArgumentParser()
parser.add_argument("--limit", type=float, default=0.90)
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--processes", action="store_true")
parser.add_argument("--micro-batches", type=int, default=8)
a = parser.parse_args()
TASK = re.compile(r"^([FB])\(.*units (\d+)-(\d+), samples (\d+)-(\d+)\)")


def replay(order, seconds):
    """Earliest finish of every task, devices in `order`, durations in `seconds`."""
    done, clock, position = {}, collections.Counter(), collections.Counter()

    def needs(task):
        m = TASK.match(task)
        if not m:
            return []
        kind, u0, u1, s0, s1 = m.group(1), *map(int, m.groups()[1:])
        out = []
        for tasks in order.values():
            for other in tasks:
                o = TASK.match(other)
                if o:
                    k, v0, v1, t0, t1 = o.group(1), *map(int, o.groups()[1:])
                    if t0 < s1 and s0 < t1 and ((kind == "F" == k and v1 == u0) or (kind == "B" == k and v0 == u1)):
                        out.append(other)
        return out

    dependencies = {task: needs(task) for tasks in order.values() for task in tasks}
    while sum(position.values()) < sum(map(len, order.values())):
        for device, tasks in order.items():
            while position[device] < len(tasks) and all(d in done for d in dependencies[tasks[position[device]]]):
                task = tasks[position[device]]
                start = max([clock[device]] + [done[d] for d in dependencies[task]])
                done[task] = clock[device] = start + seconds[task]
                position[device] += 1
    return max(clock.values())


with tempfile.TemporaryDirectory() as folder:
    model, batch, length = os.path.join(z.SMALL, "gpt-bytes.onnx"), 4 * a.micro_batches, 64
    samples = [(s, s + 4) for s in range(0, batch, 4)]
    best = 0.0
    for cut in (5, 6):
        cells = [(0, cut, s, t, "a") for s, t in samples] + [(cut, 10, s, t, "b") for s, t in samples]
        bundle, trace = os.path.join(folder, f"{cut}.zorse"), os.path.join(folder, f"{cut}.json")
        z.compile(model, bundle, z.cluster(folder, ["a", "b"]), batch, length, z.plan(folder, f"{cut}", batch, "ab", cells, schedule="1f1b"))
        text = os.path.join(folder, "text.txt")
        with open(text, "wb") as f:
            f.write(bytes((i * i // 7) % 251 for i in range(200000)))
        z.run(bundle, text, a.steps, extra=("--trace", trace, "--trace-steps", a.steps, "--spawn" if a.processes else "--in-process"))
        with open(trace) as f:
            events = [e for e in json.load(f)["traceEvents"] if e.get("ph") == "X"]
        steps = collections.defaultdict(list)
        for e in events:
            steps[e["args"]["step"]].append(e)
        durations, order, times = collections.defaultdict(list), {}, []
        for step in sorted(steps)[2:]:
            compute = [e for e in steps[step] if re.match(r"(F|B)\(|norm|clip and check|update|sum", e["name"])]
            for e in compute:
                durations[e["name"] + f"@{e['pid']}"].append(e["dur"] * 1e-6)
            end = {s: max(e["ts"] + e["dur"] for e in steps[s]) for s in (step - 1, step)}
            times.append((end[step] - end[step - 1]) * 1e-6)  # steps overlap: measured from the end of the previous step
            order = {p: [e["name"] + f"@{p}" for e in sorted(compute, key=lambda e: e["ts"]) if e["pid"] == p] for p in {e["pid"] for e in compute}}
        bound = replay(order, {k: statistics.median(v) for k, v in durations.items()})
        measured = statistics.median(times)
        best = max(best, bound / measured)
        print(f"cut before unit {cut}: step {measured * 1e3:.2f} ms, bound {bound * 1e3:.2f} ms, ratio {bound / measured:.3f}", flush=True)
print(f"best {best:.3f} (limit {a.limit:g})")
sys.exit(0 if best >= a.limit else 1)
