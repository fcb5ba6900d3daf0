"""Seconds of a step on two unequal CPU devices (CPU quotas): groups with shares 2:1 and 1:1, and plans without groups.

    tensor_parallel_quotas.py MODEL.onnx [--sequence N] [--batch N] [--rounds N] [--fast SHARE] [--slow SHARE] [--profile-seconds S]

A step has few samples, so data parallelism and pipelines leave devices idle. Plans run in turn in every round; ratios
are taken round by round, and their median counts. Fails if shares in proportion to the speeds are not faster than
equal shares. The ratio to the best plan without groups is printed, and by how much the predicted steps differ from the
measured ones; these have no limit. A profile of the undivided units, measured before, gives the predictions.
"""
import argparse
import json
import os
import re
import statistics
import sys
import tempfile

from small_cluster import Cluster
import harness as z

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--sequence", type=int, default=256)
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--profile-seconds", type=float, default=15)
parser.add_argument("--fast", type=float, default=0.9)
parser.add_argument("--slow", type=float, default=0.45)
a = parser.parse_args()
SHARES = {"fast": a.fast, "slow": a.slow}


def plans(units):
    """name -> (devices, cells, more)"""
    b = a.batch
    group = lambda shares: {"groups": [{"name": "g", "devices": ["fast", "slow"], "shares": shares}]}
    cut = max(1, round(units * a.fast / (a.fast + a.slow)))
    found = {
        "group 2:1": (["fast", "slow"], [(0, units, 0, b, "g")], group([a.fast, a.slow])),
        "group 1:1": (["fast", "slow"], [(0, units, 0, b, "g")], group([1, 1])),
        "fast alone": (["fast"], [(0, units, 0, b, "fast")], {}),
        "pipeline": (["fast", "slow"], [(lo, hi, s, s + 1, d) for lo, hi, d in ((0, cut, "fast"), (cut, units, "slow")) for s in range(b)], {"schedule": "1f1b"}),
    }
    if b > 1:
        first = min(b - 1, max(1, round(b * a.fast / (a.fast + a.slow))))
        found["data parallel"] = (["fast", "slow"], [(0, units, 0, first, "fast"), (0, units, first, b, "slow")], {})
    return found


def predict(folder, name, devices, plan, profile):
    """Seconds of a step with a profile."""
    report = os.path.join(folder, name + ".report.json")
    z.call("zorse-plan", a.model, "--cluster", z.cluster(folder, devices), "--profile", profile, "--seq-length", a.sequence, "--global-batch-size", a.batch, "--plan", plan, "--quiet", "--json", report)
    with open(report) as f:
        return json.load(f)["step_seconds"]


def main():
    os.environ["ZORSE_GEMM"] = "openblas"
    with tempfile.TemporaryDirectory() as folder, Cluster(SHARES) as cluster:
        data = os.path.join(folder, "data.txt")
        with open(data, "wb") as f:
            f.write(bytes((i * i // 7) % 251 for i in range(300000)))
        _, _, text = z.call("zorse-compile", a.model, "--cluster", z.cluster(folder, list(SHARES)), "--seq-length", a.sequence, "--global-batch-size", a.batch, "--compile-to=lower")
        units = int(re.search(r"(\d+) units of", text)[1])
        bundles, files = {}, {}
        for name, (devices, cells, more) in plans(units).items():
            word = name.replace(" ", "-").replace(":", "-")
            bundles[name] = os.path.join(folder, word + ".zorse")
            files[name] = devices, z.plan(folder, word, a.batch, devices, cells, **more)
            z.compile(a.model, bundles[name], z.cluster(folder, devices), a.batch, a.sequence, files[name][1])
        print(f"{cluster.describe()}; {os.path.basename(a.model)}, batch {a.batch} x {a.sequence}, {units} units", flush=True)
        profile = os.path.join(folder, "profile.json")
        with open(profile, "w") as f:
            json.dump(cluster.profile(bundles["pipeline"], [1, 2], a.profile_seconds), f)
        predicted = {name: predict(folder, name.replace(" ", "-").replace(":", "-"), devices, plan, profile) for name, (devices, plan) in files.items()}
        seconds = {name: [] for name in bundles}
        for turn in range(a.rounds):
            for name, bundle in bundles.items():
                seconds[name].append(statistics.fmean(cluster.run(bundle, data, 1 + a.steps)[1:]))
            print(f"round {turn + 1} of {a.rounds}: " + ", ".join(f"{name} {s[-1]:.3f} s" for name, s in seconds.items()), flush=True)
        best = min((name for name in seconds if not name.startswith("group")), key=lambda name: statistics.median(seconds[name]))
        ratios = {other: statistics.median(o / g for o, g in zip(seconds[other], seconds["group 2:1"])) for other in ("group 1:1", best)}
        errors = {name: predicted[name] / statistics.median(s) - 1 for name, s in seconds.items()}
        print("predicted: " + ", ".join(f"{name} {predicted[name]:.3f} s ({error:+.1%})" for name, error in errors.items()))
        print(f"shares by speed: {ratios['group 1:1']:.2f} x faster than equal shares, {ratios[best]:.2f} x than the best plan without groups ({best})")
        return 0 if ratios["group 1:1"] > 1 else 1


if __name__ == "__main__":
    sys.exit(main())
