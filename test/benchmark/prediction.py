"""Compares predicted with measured step times, on a cluster of unequal CPU devices made of this machine
(small_cluster.py).

    prediction.py MODEL.onnx --sequence S [--shares a=0.72,b=0.54,...] [--batch 64] [--repeat 5] [--steps 3] [--period 6] [--throttle] [--megabits R] [--keep FOLDER] [--only NAMES]
                  [--searched NAMES] [--timelines]

1. A profile is taken once, at other row counts than those of the hand-made plans. zorse-plan searches some more plans
   with it.
2. All plans are compiled with it. The compiler's prediction and the result of `zorse-run --simulate` for the same
   programs are written to predictions.json.
3. Then all plans are executed: --repeat rounds, with one process per device; the first step of each run does not count.
   Plans that the replay does not explain are executed --again times more. The median of all runs of a plan counts.

Prints a line per plan, then the mean errors and the number of pairs of plans that differ by more than 8 % and are
ranked correctly. Fails if the mean error exceeds 5 %, that of the replay 3 %, or if any pair is ranked wrong.
"""
import argparse
import collections
import itertools
import json
import os
import re
import statistics
import sys
import tempfile
import time

from small_cluster import Cluster
import harness as z
import timelines

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--sequence", type=int, default=128)
parser.add_argument("--shares", default="a=0.72,b=0.54,c=0.36,d=0.18")
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--repeat", type=int, default=5)
parser.add_argument("--again", type=int, default=0, help="additional runs of a plan if its replay and its first runs differ by more than the limit, because of other work or a wrong replay")
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--period", type=float, default=6, help="period of the quotas in ms")
parser.add_argument("--profile-seconds", type=float, default=60)
parser.add_argument("--throttle", action="store_true", help="the runtime's own throttle instead of quotas")
parser.add_argument("--megabits", type=float, help="rate of every device's link; default: loopback")
parser.add_argument("--keep", help="folder for all files; default: a temporary folder")
parser.add_argument("--only", help="comma-separated names of hand-made plans; default: all")
parser.add_argument("--searched", default="searched,searched-1f1b,searched-two-stages", help="comma-separated names of searched plans; '' for none")
parser.add_argument("--timelines", action="store_true", help="print the time of a step by device and class of instruction, executed against simulated")
parser.add_argument("--least-periods", type=float, default=20, help="minimum quota periods of a plan's median instruction; plans below it do not count, because pauses last whole periods")
parser.add_argument("--least-plans", type=int, default=1, help="minimum number of plans that count")
parser.add_argument("--limit", type=float, default=0.05)
parser.add_argument("--replay-limit", type=float, default=0.03)
a = parser.parse_args()
shares = {name: float(share) for name, share in (s.split("=") for s in a.shares.split(","))}
devices = list(shares)
folder = a.keep or tempfile.mkdtemp(prefix="zorse-prediction-")
os.makedirs(folder, exist_ok=True)
os.environ["ZORSE_GEMM"] = "openblas"  # the same in the profile and in the runs, whichever was measured as faster under a quota


def path(name):
    return os.path.join(folder, name)


def text_file():
    name = path("data.txt")
    with open(name, "wb") as f:
        f.write(bytes((i * i // 7) % 251 for i in range(300000)))
    return name


def cluster_file(name, names):
    with open(path(name), "w") as f:
        f.write("name: small\nnodes:\n")
        for device in names:  # each a node: they share only the link
            f.write(f"  - name: node-{device}\n    devices:\n      - {{ name: {device}, kind: cpu, flops_per_second: {shares[device] * 5e10:g}, memory: 4GiB, threads: 1 }}\n")
    return path(name)


def spread(total, weights, step=1):
    """Multiples of `step` in proportion."""
    whole = [int(total / step * w / sum(weights)) for w in weights]
    for i in sorted(range(len(weights)), key=lambda i: whole[i] - total / step * weights[i] / sum(weights))[:total // step - sum(whole)]:
        whole[i] += 1
    return [w * step for w in whole]


def stage(units, members, samples, microbatch):
    return {"units": list(units), "devices": [{"device": d, "samples": s, "micro_batch_size": microbatch} for d, s in zip(members, samples) if s > 0]}


def pipeline(groups, cuts, batch, microbatch):
    """Stages of devices that share the samples in proportion to their speeds."""
    return [stage(u, g, spread(batch, [shares[d] for d in g], microbatch if len(g) > 1 else 1), microbatch) for g, u in zip(groups, zip(cuts, cuts[1:]))]


def cuts_by_speed(units, groups):
    """The first and last units have weight 0: embedding and head are small."""
    inner = spread(units - 2, [sum(shares[d] for d in g) for g in groups])
    cuts = [0]
    for i, n in enumerate(inner):
        cuts.append(cuts[-1] + n + (i == 0) + (i == len(inner) - 1))
    return cuts


def plans(units):
    """name -> keys of a plan. Hand-made plans: good, bad and unusual ones."""
    B, names = a.batch, sorted(devices, key=lambda d: -shares[d])
    rest, best = names[1:], names[0]
    m = max(4, B // 8)
    found = {}

    def add(name, keys, used=None, **more):
        found[name] = {"global_batch_size": B, "devices": used or names, **keys, **more}

    one = [[d] for d in names]
    add("data-proportional", {"stages": [stage((0, units), names, spread(B, [shares[d] for d in names], 2), m)]})
    add("data-equal", {"stages": [stage((0, units), names, spread(B, [1] * len(names), 2), m)]})
    add("data-without-slowest", {"stages": [stage((0, units), names[:-1], spread(B, [shares[d] for d in names[:-1]], 2), m)]}, used=names[:-1])
    add("pipeline-by-speed", {"stages": pipeline(one, cuts_by_speed(units, one), B, m)}, schedule="1f1b")
    add("pipeline-by-speed-small-rows", {"stages": pipeline(one, cuts_by_speed(units, one), B, m // 2)}, schedule="1f1b")
    add("pipeline-gpipe", {"stages": pipeline(one, cuts_by_speed(units, one), B, m)}, schedule="gpipe")
    add("pipeline-reversed", {"stages": pipeline(one[::-1], cuts_by_speed(units, one[::-1]), B, m)}, schedule="1f1b")
    even = [units * i // len(names) for i in range(len(names) + 1)]
    add("pipeline-even-layers", {"stages": pipeline(one, even, B, m)}, schedule="1f1b")
    two = [[best], rest]
    add("fastest-then-others", {"stages": pipeline(two, cuts_by_speed(units, two), B, m)}, schedule="1f1b")
    add("others-then-fastest", {"stages": pipeline(two[::-1], cuts_by_speed(units, two[::-1]), B, m)}, schedule="1f1b")
    if len(names) > 3:
        mixed = [[names[0], names[3]], [names[1], names[2]]]
        add("two-mixed-stages", {"stages": pipeline(mixed, cuts_by_speed(units, mixed), B, m)}, schedule="1f1b")
        pairs = [[names[0], names[3]], [names[1], names[2]]]
        samples = spread(B, [sum(shares[d] for d in p) for p in pairs], m)
        add("two-pipelines", {"pipelines": [{"samples": [0, samples[0]], "stages": pipeline([[d] for d in pairs[0]], cuts_by_speed(units, [[d] for d in pairs[0]]), samples[0], m)},
                                            {"samples": [samples[0], B], "stages": pipeline([[d] for d in pairs[1]], cuts_by_speed(units, [[d] for d in pairs[1]]), samples[1], m)}]})
    add("fastest-two", {"stages": pipeline(one[:2], cuts_by_speed(units, one[:2]), B, m)}, used=names[:2], schedule="1f1b")
    return found


def searched_plans():
    """Plans that zorse-plan finds with the profile, with and without options."""
    slowest, found = min(devices, key=shares.get), {}
    for name, words in (("searched", ()), ("searched-two-stages", ("--pipeline-stages", 2)), ("searched-without-slowest", ("--exclude", slowest)), ("searched-1f1b", ("--pipeline-schedule", "1f1b", "--split-backward", "no")), ("searched-gpipe", ("--pipeline-schedule", "gpipe"))):
        if name not in a.searched.split(","):
            continue
        code, _, err = z.call("zorse-plan", a.model, "--cluster", path("cluster.yaml"), "--profile", path("profile.json"), "--global-batch-size", a.batch, "--seq-length", a.sequence, "--quiet", "-o",
                              path(name + ".plan.json"), *words, ok=False)
        if code != 0:
            print(f"{name}: no plan: {err.strip()[-300:]}", flush=True)
            continue
        with open(path(name + ".plan.json")) as f:
            found[name] = json.load(f)
    return found


def compile_plan(name, keys, extra=()):
    with open(path(name + ".plan.json"), "w") as f:
        json.dump(keys, f)
    bundle = path(name + ".zorse")
    z.compile(a.model, bundle, path("cluster.yaml"), keys["global_batch_size"], a.sequence, path(name + ".plan.json"), extra=extra)
    return bundle


def simulate(bundle):
    z.call("zorse-run", bundle, "--simulate", "--simulate-steps", 6, "--quiet", "--json", path("simulation.json"), "--trace", bundle + ".simulated.json")
    with open(path("simulation.json")) as f:
        return json.load(f)


def bodies_of(bundle):
    """Seconds of the forward and backward instructions."""
    with open(bundle + ".simulated.json") as f:
        return [e["dur"] * 1e-6 for e in json.load(f)["traceEvents"] if e["ph"] == "X" and timelines.class_of(e["name"]) in ("forward", "backward", "weight gradients")]


def profile_rows(used):
    """Row counts between and outside those of the plans, never equal to one of them."""
    low, high = min(used), max(used)
    rows = sorted({max(1, low - 1), (low + high) // 2, high + high // 2 + 1})
    return [r if r not in used else r + 1 for r in rows]


def rows_of(keys):
    if "cells" in keys:
        return {c["samples"][1] - c["samples"][0] for c in keys["cells"]}
    return {r for p in keys.get("pipelines", [keys]) for s in p["stages"] for d in s["devices"]
            for r in {min(d["micro_batch_size"], d["samples"]), d["samples"] % d["micro_batch_size"]} if r > 0}


def main():
    global data
    data = text_file()
    cluster_file("cluster.yaml", devices)
    _, _, text = z.call("zorse-compile", a.model, "--cluster", path("cluster.yaml"), "--seq-length", a.sequence, "--global-batch-size", a.batch, "--compile-to=lower")
    units = int(re.search(r"(\d+) units of", text)[1])
    chosen = plans(units)
    if a.only:
        chosen = {name: chosen[name] for name in a.only.split(",")}
    used = set().union(*map(rows_of, chosen.values()))
    rows = profile_rows(used)
    with Cluster(shares, a.period * 1e-3, quotas=False if a.throttle else None, megabits=a.megabits) as cluster:
        print(f"{cluster.describe()}; {os.path.basename(a.model)}, batch {a.batch} x {a.sequence}, {units} units")
        print(f"plans use {sorted(used)} rows; profiled at {rows}", flush=True)
        profiling = OtherWork()
        profile = cluster.profile(compile_plan("data-proportional", plans(units)["data-proportional"]), rows, a.profile_seconds)
        print(f"while the profile was taken, others kept {profiling.cores():.2f} cores busy", flush=True)
        with open(path("profile.json"), "w") as f:
            json.dump(profile, f, indent=1)
        print(profile.get("comment", ""), flush=True)
        for device in profile["devices"]:
            if moving := device.get("communication"):
                print(f"{device['device']}: a message costs {moving['per_message'] * 1e6:.0f} us and {moving['per_byte'] * 1e9:.2f} ns a byte of computing, and waits {moving['delay'] * 1e3:.1f} ms while it computes")
        for link in profile["links"]:
            print(f"link {link['from']} to {link['to']}: {link['bandwidth'] / 1e6:.0f} MB/s, {link.get('latency', 0) * 1e6:.0f} us", flush=True)

        for name, keys in searched_plans().items():
            chosen[name] = keys
            print(f"{name}: {len(keys['cells'])} cells of {sorted(rows_of(keys))} rows" + (", some of them profiled" if rows_of(keys) & set(rows) else ""), flush=True)

        predictions = {}
        for name, keys in chosen.items():
            bundle = compile_plan(name, keys, extra=("--profile", path("profile.json")))
            simulation = simulate(bundle)
            same = [n for n, p in predictions.items() if (p["predicted"], p["simulated"]) == (simulation["planned_seconds"], simulation["step_seconds"])]
            if same:
                print(f"{name}: as {same[0]}", flush=True)
                continue
            predictions[name] = {"predicted": simulation["planned_seconds"], "simulated": simulation["step_seconds"], "bundle": bundle}
            bodies = bodies_of(bundle)
            predictions[name].update(shortest=min(bodies) / a.period * 1e3, median=statistics.median(bodies) / a.period * 1e3)
            predictions[name]["counts"] = predictions[name]["median"] >= a.least_periods
            print(f"{name}: instructions that compute take {predictions[name]['shortest']:.0f} periods at least, {predictions[name]['median']:.0f} in the middle" +
                  ("" if predictions[name]["counts"] else f": executed, but not counted (fewer than {a.least_periods:g})"), flush=True)
        with open(path("predictions.json"), "w") as f:
            json.dump({"written": time.time(), "plans": predictions}, f, indent=1)

        rough = a.repeat * sum(p["simulated"] * (1 + a.steps) + 3 for p in predictions.values()) / 60
        print(f"{len(predictions)} predictions of {min(p['predicted'] for p in predictions.values()):.2f} to {max(p['predicted'] for p in predictions.values()):.2f} s are written; "
              f"executing takes about {rough:.0f} minutes", flush=True)
        measured, executing = collections.defaultdict(list), OtherWork()
        for round_ in range(a.repeat + a.again):
            for name in predictions:
                if round_ >= a.repeat and abs(predictions[name]["simulated"] / statistics.median(measured[name][:a.repeat]) - 1) <= a.replay_limit:
                    continue
                steps = cluster.run(predictions[name]["bundle"], data, 1 + a.steps, trace=predictions[name]["bundle"] + ".executed.json" if a.timelines else None)
                measured[name].append(statistics.fmean(steps[1:]))
                print(f"round {round_ + 1} of {a.repeat + a.again}: {name} {measured[name][-1]:.3f} s, predicted {predictions[name]['predicted']:.3f} s", flush=True)
        print(f"while plans were executed, others kept {executing.cores():.2f} cores busy")
    if a.timelines:
        for name in predictions:
            print(f"{name}, of the last run:")
            timelines.compare(predictions[name]["bundle"] + ".executed.json", predictions[name]["bundle"] + ".simulated.json")
    judge(predictions, measured)


class OtherWork:
    """CPU time used by other processes, which may differ between a profile and the runs it should predict."""

    def __init__(self):
        self.begin = self.now()

    @staticmethod
    def now():
        with open("/proc/stat") as f:
            user, nice, system, _, _, irq, soft, *_ = map(int, f.readline().split()[1:])
        used = os.times()
        return time.monotonic(), (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK") - sum(used[:4])

    def cores(self):
        wall, busy = (b - a for a, b in zip(self.begin, self.now()))
        return max(0.0, busy / wall)


def judge(predictions, measured):
    middle = {name: statistics.median(runs) for name, runs in measured.items()}
    errors, replays = [], []
    print(f"{'plan':30} {'predicted':>10} {'simulated':>10} {'measured':>10} {'runs':>14} {'error':>8} {'replay':>8}")
    for name in sorted(middle, key=middle.get):
        p, m = predictions[name], middle[name]
        error, replay = p["predicted"] / m - 1, p["simulated"] / m - 1
        if p["counts"]:
            errors.append(error)
            replays.append(replay)
        spread_ = f"{min(measured[name]):.2f}-{max(measured[name]):.2f}"
        print(f"{name:30} {p['predicted']:9.3f}s {p['simulated']:9.3f}s {m:9.3f}s {spread_:>14} {error:8.1%} {replay:8.1%}" + ("" if p["counts"] else "  not counted"))
    middle = {name: m for name, m in middle.items() if predictions[name]["counts"]}
    if not middle:
        sys.exit("no plan counts: choose a larger batch, fewer devices or a shorter period")
    if len(middle) < a.least_plans:
        print(f"{len(middle)} plans count, expected at least {a.least_plans}")
    pairs = [(x, y) for x, y in itertools.combinations(middle, 2) if max(middle[x], middle[y]) > 1.08 * min(middle[x], middle[y])]
    wrong = [(x, y) for x, y in pairs if (predictions[x]["predicted"] - predictions[y]["predicted"]) * (middle[x] - middle[y]) <= 0]
    for x, y in wrong:
        print(f"ranked wrong: {x} and {y}")
    mean, replay = (statistics.fmean(map(abs, e)) for e in (errors, replays))
    print(f"{len(middle)} plans over {max(middle.values()) / min(middle.values()):.2f}x in time; ranked right: {len(pairs) - len(wrong)} of {len(pairs)} pairs that differ by more than 8 %")
    # An error common to all plans is the profile's: another CPU frequency, or other work at the time. The rest is the
    # model's.
    common = statistics.median(e + 1 for e in replays)
    print(f"the replay takes {common:.3f} times the measured time in the middle; without this factor its mean error is {statistics.fmean(abs((e + 1) / common - 1) for e in replays):.2%}")
    print(f"mean error of the predicted step {mean:.2%} (limit {a.limit:.0%}), worst {max(map(abs, errors)):.1%}; of the replay {replay:.2%} (limit {a.replay_limit:.0%}), "
          f"worst {max(map(abs, replays)):.1%}")
    sys.exit(0 if mean <= a.limit and replay <= a.replay_limit and not wrong and len(middle) >= a.least_plans else 1)


if __name__ == "__main__":
    main()
