"""Benefit of Zorse's plan on a cluster of unequal CPU devices made of this machine (small_cluster.py): tokens/s
compared with PyTorch training the same model under the same quotas.

    worth.py MODEL.onnx --model gpt-6x384 [--shares a=0.72,b=0.54,c=0.36,d=0.18] [--batch 64] [--rounds 3] [--steps 2] [--keep FOLDER] [--quick]

All systems are measured in one run, with one thread and one process per device, over Gloo on loopback, with the same
initial weights, samples and AdamW:

1. zorse-profile measures the devices under their quotas, zorse-plan plans with that profile, zorse-compile compiles.
2. PyTorch methods are tuned for their fastest micro-batch size: DDP and FSDP2 with equal and with proportional shares
   of the batch, pipelines (1F1B, GPipe) cut equally and by speed, also within blocks.
3. Zorse and all these methods run in rounds; medians of the rounds count. Losses of the first steps must agree.
4. Each device trains the whole model alone, all at the same time, with Zorse and with PyTorch. The faster of both
   counts. Compute limits every plan under these quotas to the sum over the devices.

Prints a table, then the ratio to the best PyTorch method and the fraction of the sum. Fails if they are below --ratio
and --share. Needs root (quotas) and PyTorch.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

from small_cluster import Cluster
import harness as z

parser = argparse.ArgumentParser()
parser.add_argument("onnx")
parser.add_argument("--model", default="gpt-6x384", help="name of the model for models/make_benchmark.py")
parser.add_argument("--shares", default="a=0.72,b=0.54,c=0.36,d=0.18")
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--sequence", type=int, default=128)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--steps", type=int, default=2, help="steps per round, after one that does not count")
parser.add_argument("--own-batch", type=int, default=32, help="batch of devices that train alone, smaller because a full step of the slowest would take a minute")
parser.add_argument("--period", type=float, default=10, help="period of the quotas in ms")
parser.add_argument("--profile-seconds", type=float, default=40)
parser.add_argument("--rows", default="1,2,4,8", help="row counts of the profile")
parser.add_argument("--keep", help="folder for all files; default: a temporary folder")
parser.add_argument("--plan", action="append", default=[], metavar="NAME=FILE", help="additional plan for Zorse")
parser.add_argument("--profile", help="an existing profile")
parser.add_argument("--only", default="zorse,torch,own", help="parts: zorse, torch, own")
parser.add_argument("--ways", help="comma-separated names of PyTorch methods; default: all")
parser.add_argument("--trace", action="store_true", help="keep Zorse's timeline of every round")
parser.add_argument("--ratio", type=float, default=1.8)
parser.add_argument("--share", type=float, default=0.85)
parser.add_argument("--quick", action="store_true", help="one round, fewer settings")
a = parser.parse_args()
shares = {name: float(share) for name, share in (s.split("=") for s in a.shares.split(","))}
devices = sorted(shares, key=lambda d: -shares[d])
folder = a.keep or tempfile.mkdtemp(prefix="zorse-worth-")
os.makedirs(folder, exist_ok=True)
TRAINING = {"optimizer": "adamw", "lr": "3e-4", "warmup-steps": "0", "max-grad-norm": "0", "betas": "0.9,0.95", "eps": "1e-8", "weight-decay": "0.1"}
TOKENS = a.batch * a.sequence
begun = time.monotonic()


def path(name):
    return os.path.join(folder, name)


def say(text):
    print(f"[{time.monotonic() - begun:4.0f} s] {text}", flush=True)


def spread(total, weights, least=0):
    """Whole numbers in proportion."""
    whole = [max(least, int(total * w / sum(weights))) for w in weights]
    for i in sorted(range(len(weights)), key=lambda i: whole[i] - total * weights[i] / sum(weights))[:total - sum(whole)]:
        whole[i] += 1
    return whole


def files():
    with open(path("data.txt"), "wb") as f:
        f.write(bytes((i * i // 7) % 251 for i in range(1000000)))

    def cluster(name, names):
        with open(path(name), "w") as f:
            f.write("name: small\nnodes:\n")
            for device in names:  # each a node: they share only the link
                f.write(f"  - name: node-{device}\n    devices:\n      - {{ name: {device}, kind: cpu, flops_per_second: {shares[device] * 5e10:g}, memory: 4GiB, threads: 1 }}\n")

    cluster("cluster.yaml", devices)
    for d in devices:
        cluster(f"only-{d}.yaml", [d])


def compile_plan(name, cluster, plan=None, extra=(), batch=None):
    bundle = path(name + ".zorse")
    z.compile(a.onnx, bundle, path(cluster), batch or a.batch, a.sequence, plan, TRAINING, extra=extra)
    return bundle


# Zorse

def profile_and_plan(cluster):
    """The bundle of the chosen plan, one of the whole model for every device, and others on request. A profile knows all devices."""
    if a.profile:
        with open(a.profile) as f:
            profile = json.load(f)
    else:
        profile = cluster.profile(compile_plan("to-measure", "cluster.yaml"), [int(r) for r in a.rows.split(",")], a.profile_seconds)
        say("profile measured")
    with open(path("profile.json"), "w") as f:
        json.dump(profile, f, indent=1)
    measured = ("--profile", path("profile.json"))
    say("planning")
    _, out, err = z.call("zorse-plan", a.onnx, "--cluster", path("cluster.yaml"), *measured, "--global-batch-size", a.batch, "--seq-length", a.sequence, "-o", path("chosen.json"))
    print(out + err, flush=True)
    bundles = {"zorse": compile_plan("chosen", "cluster.yaml", path("chosen.json"), extra=measured)} if "zorse" in a.only else {}
    for name, file in (p.split("=") for p in a.plan):
        bundles["zorse " + name] = compile_plan(name, "cluster.yaml", file, extra=measured)
    own = {d: compile_plan(f"only-{d}", f"only-{d}.yaml", extra=measured, batch=a.own_batch) for d in devices} if "own" in a.only else {}
    return bundles, own


def zorse_steps(cluster, bundle, steps, trace=None):
    """Seconds and losses of every step."""
    with tempfile.TemporaryDirectory() as out:
        metrics = os.path.join(out, "metrics.jsonl")
        cluster._ranks(bundle, ["zorse-run", "--data", path("data.txt"), "--max-steps", steps, "--metrics-file", metrics, "--quiet", "--heartbeat-timeout", 60] +
                       (["--trace", trace] if trace else []))
        with open(metrics) as f:
            found = [m for m in map(json.loads, f) if "loss" in m]
    return [m["seconds"] for m in found], [m["loss"] for m in found]


# PyTorch

class Torch:
    """One rank per device for the whole measurement; outside its quota while it starts."""

    def __init__(self, cluster):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        words = [os.environ.get("ZORSE_PYTHON", sys.executable), os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_cluster.py"), "--ranks", str(len(devices)), "--store",
                 path("torch.store"), "--model", a.model, "--data", path("data.txt"), "--global-batch-size", str(a.batch), "--sequence", str(a.sequence)]
        if os.path.exists(path("torch.store")):
            os.unlink(path("torch.store"))
        self.logs = [open(path(f"torch-{d}.log"), "w+") for d in devices]
        self.ranks = [subprocess.Popen(words + ["--rank", str(i)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.logs[i], text=True, env=environment)
                      for i in range(len(devices))]
        self._answers([{"do": "join", "file": os.path.join(cluster._path(d), "cgroup.procs"), "processor": cluster.processors.get(d)} for d in devices])

    def _answers(self, commands):
        for rank, command in zip(self.ranks, commands):
            rank.stdin.write(json.dumps(command) + "\n")
            rank.stdin.flush()
        found = []
        for rank, device, log in zip(self.ranks, devices, self.logs):
            line = rank.stdout.readline()
            if not line:
                log.seek(0)
                raise z.Failure(f"PyTorch on device {device}: {log.read()[-3000:]}")
            found.append(json.loads(line))
        return found

    def do(self, **command):
        return self._answers([command] * len(self.ranks))

    def steps(self, name, steps):
        """Seconds of every step, from the common start or the end of the previous step on the last rank, and losses."""
        answers = self.do(do="run", name=name, steps=steps)
        ends = [min(x["begin"] for x in answers)] + [max(x["ends"][i] for x in answers) for i in range(steps)]
        return [y - x for x, y in zip(ends, ends[1:])], [sum(x["losses"][i] for x in answers) for i in range(steps)]

    def close(self):
        for rank in self.ranks:
            rank.stdin.close()
        for rank in self.ranks:
            try:
                rank.wait(timeout=20)
            except subprocess.TimeoutExpired:
                rank.kill()
                rank.wait()


def cuts(units, weights, costs):
    """Partitions a chain into parts with costs close to `weights`: minimizes the maximum of cost / weight, no part empty. Exhaustive."""
    best = (float("inf"), None)

    def go(begin, parts, worst, sums):
        nonlocal best
        if worst >= best[0]:
            return
        if len(parts) == len(weights):
            if begin == units:
                best = (worst, [0] + parts)
            return
        for end in range(begin + 1, units - (len(weights) - len(parts) - 1) + 1):
            go(end, parts + [end], max(worst, sum(costs[begin:end]) / weights[len(parts)]), sums)

    go(0, [], 0.0, None)
    return best[1]


def ways():
    """name -> PyTorch settings; the list has one entry for every setting to try."""
    with_speed, equal = [shares[d] for d in devices], [1.0] * len(devices)
    layers, width = map(int, re.fullmatch(r"gpt-(\d+)x(\d+)", a.model).groups())
    costs = [0.1] + [4 * width + a.sequence, 8 * width] * layers + [256 + 0.1]  # multiplications per token and channel
    found = {}
    for name, weights in (("equal", equal), ("proportional", with_speed)):
        rows = spread(a.batch, weights, 1)
        found[f"DDP {name}"] = [{"kind": "ddp", "rows": rows, "microbatch": m} for m in (64, 8)]
        found[f"FSDP2 {name}"] = [{"kind": "fsdp", "rows": rows, "microbatch": m, "reshard": False} for m in (64,)]  # in parts, ranks with fewer parts would miss gathers
    for name, weights in (("equal", equal), ("proportional", with_speed)):
        place = cuts(len(costs), weights, costs)
        found[f"pipelining {name}"] = [{"kind": "pipeline", "cuts": place, "schedule": schedule, "microbatches": m} for schedule, m in
                                       (("1f1b", 16), ("gpipe", 16), ("1f1b", 32), ("gpipe", 32), ("1f1b", 8))]
    return {k: v for k, v in found.items() if not a.ways or k in a.ways.split(",")}


def trials(torch):
    """name -> its fastest setting, from one step of each with proportional shares; equal ones use the same setting.
    PyTorch's processes hold only one model at a time.
    """
    best = {}
    for name, settings in sorted(ways().items(), key=lambda item: "proportional" not in item[0]):
        like = best.get(name.replace("equal", "proportional"))
        if like:
            settings = [s for s in settings if all(s[k] == like[k] for k in ("schedule", "microbatches", "microbatch") if k in s)]
        elif a.quick:
            settings = settings[:2]
        times = []
        for setting in settings if len(settings) > 1 else ():
            torch.do(do="make", name=name, **setting)
            times += torch.steps(name, 1)[0]
            torch.do(do="drop", name=name)
            say(f"{name}, {', '.join(f'{k} {v}' for k, v in setting.items() if k != 'kind')}: {TOKENS / times[-1]:.0f} tokens/s in the first step")
        best[name] = settings[times.index(min(times))] if times else settings[0]
    return best


def own_speeds(cluster, bundles, torch):
    """Every device alone, all at the same time: tokens/s with Zorse and with PyTorch."""
    tokens = a.own_batch * a.sequence
    steps = {d: 1 + max(1, int(shares[d] / min(shares.values()))) for d in devices}  # the faster ones train as long as the slowest
    with concurrent.futures.ThreadPoolExecutor(len(devices)) as pool:
        zorse = dict(zip(devices, pool.map(lambda d: tokens / statistics.median(zorse_steps(cluster, bundles[d], steps[d])[0][1:]), devices)))
    say("alone, by Zorse: " + ", ".join(f"{d} {v:.0f}" for d, v in zorse.items()))
    found = {}
    if torch:
        torch.do(do="make", name="own", kind="own", rows=[a.own_batch], microbatch=8)
        answers = torch._answers([{"do": "run", "name": "own", "steps": steps[d]} for d in devices])
        torch.do(do="drop", name="own")
        for d, answer in zip(devices, answers):
            times = [y - x for x, y in zip([answer["begin"]] + answer["ends"], answer["ends"])]
            found[d] = tokens / statistics.median(times[1:])
        say("alone, by PyTorch: " + ", ".join(f"{d} {v:.0f}" for d, v in found.items()))
    return zorse, found


def rounds(cluster, torch, bundles, chosen, measured, losses):
    count = 1 if a.quick else a.rounds
    for round_ in range(count):
        for name, bundle in bundles.items():
            times, found = zorse_steps(cluster, bundle, 1 + a.steps, path(f"{name}-{round_}.trace.json") if a.trace else None)
            measured[name] += times[1:]
            losses.setdefault(name, found)
        for name, setting in chosen.items():
            behind = "equal" in name  # too slow: their first step may count, and the last round leaves them out
            if behind and count > 1 and round_ == count - 1:
                continue
            torch.do(do="make", name=name, **setting)
            times, found = torch.steps(name, 1 if behind else 1 + a.steps)
            torch.do(do="drop", name=name)
            measured[name] += times if behind else times[1:]
            losses.setdefault(name, found)
        say(f"round {round_ + 1}: " + ", ".join(f"{n} {TOKENS / statistics.median(t):.0f}" for n, t in measured.items()))


def main():
    files()
    measured, losses = collections.defaultdict(list), {}
    with Cluster(shares, a.period * 1e-3, quotas=True) as cluster:
        say(f"{cluster.describe()}; {a.model}, batch {a.batch} x {a.sequence}")
        bundles, own = profile_and_plan(cluster)
        torch = Torch(cluster) if "torch" in a.only else None
        try:
            chosen = trials(torch) if torch else {}
            rounds(cluster, torch, bundles if "zorse" in a.only else {}, chosen, measured, losses)
            zorse_own, torch_own = own_speeds(cluster, own, torch) if own else ({}, {})
        finally:
            if torch:
                torch.close()
    judge(measured, losses, zorse_own, torch_own)


def judge(measured, losses, zorse_own, torch_own):
    rates = {name: TOKENS / statistics.median(times) for name, times in measured.items()}
    fastest = max((r for n, r in rates.items() if not n.startswith("zorse")), default=float("nan"))
    total = sum(max(zorse_own[d], torch_own.get(d, 0)) for d in zorse_own) or float("nan")
    own_torch = sum(torch_own.values()) or float("nan")
    print(f"{'way':24} {'tokens/s':>9} {'steps':>15} {'to the best of PyTorch':>23} {'share of the sum':>17} {'of PyTorch alone':>17}   losses")
    for name in sorted(rates, key=rates.get, reverse=True):
        spread_ = f"{min(measured[name]):.2f}-{max(measured[name]):.2f} s"
        print(f"{name:24} {rates[name]:9.0f} {spread_:>15} {rates[name] / fastest:23.2f} {rates[name] / total:17.2f} {rates[name] / own_torch:17.2f}   " + " ".join(f"{x:.5f}" for x in losses[name][:3]))
    for title, found in (("Zorse", zorse_own), ("PyTorch", torch_own)):
        if found:
            print(f"alone by {title}: " + ", ".join(f"{d} {v:.0f}" for d, v in found.items()) + f"; together {sum(found.values()):.0f} tokens/s")
    common = min(len(x) for x in losses.values() if x)
    worst = max(abs(x[i] / y[i] - 1) for x in losses.values() for y in losses.values() for i in range(common))
    print(f"losses of {common} steps agree within {worst:.1e} (limit 1e-4)")
    if "zorse" in rates and torch_own:
        ratio, share = rates["zorse"] / fastest, rates["zorse"] / total
        print(f"{ratio:.2f} x the best of PyTorch's (aim {a.ratio:g}), {share:.2f} of the sum of the devices' own speeds (aim {a.share:g})")
        sys.exit(0 if ratio >= a.ratio and share >= a.share and worst <= 1e-4 else 1)


if __name__ == "__main__":
    main()
