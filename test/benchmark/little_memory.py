"""What the planner returns for random models, clusters and batches with little memory.

    little_memory.py [--count 200] [--first 1]

For each case, devices have a random part of the memory that the plan without limits takes. A plan that zorse-plan returns
must compile (zorse-compile --simulate-only places every buffer). If zorse-plan says that no plan fits, further searches with
other seeds and eight times the time must not find one. Prints a line per case that fails.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BIN = os.path.join(ROOT, "build", "release", "bin")
MODELS = {"gpt-bytes": (16, 128), "gpt-deep": (16, 64), "gpt-words": (4, 16)}  # name: least and largest sequence length


def call(tool, *words):
    return subprocess.run([os.path.join(BIN, tool), *map(str, words)], capture_output=True, text=True)


def cluster_of(rng, memory, hosts):
    """Devices of 1 to 3 nodes; `memory` bytes by device, or none: without limits."""
    nodes, at = [], 0
    for n in range(rng.randint(1, 3)):
        devices = []
        for d in range(rng.randint(1, 3)):
            limit = memory[at] if memory else 0
            devices.append({"name": f"d{at}", "kind": "cpu", "flops_per_second": rng.choice([1e10, 2e10, 4e10, 9e10]), "memory": limit, "threads": 1})
            at += 1
        nodes.append({"name": f"n{n}", "devices": devices, "nic": {"bandwidth": rng.choice(["0.1 GB/s", "1 GB/s"]), "latency": "50 us"}})
        if memory and hosts:
            nodes[-1]["host_memory"] = hosts
    return {"nodes": nodes}


def write(path, content):
    with open(path, "w") as f:
        json.dump(content, f)


def judge(seed, folder):
    """(text, whether a plan was found, whether all is as it must be)"""
    rng = random.Random(seed)
    model = rng.choice(sorted(MODELS))
    sequence, batch, shape = rng.randint(*MODELS[model]), rng.choice([1, 3, 8, 16, 48]), rng.random()
    file = os.path.join(ROOT, "models", "small", model + ".onnx")
    cluster, plan, report = (os.path.join(folder, f"{seed}.{kind}") for kind in ("cluster.yaml", "plan.json", "report.json"))
    words = [file, "--cluster", cluster, "--global-batch-size", batch, "--seq-length", sequence]
    text = f"seed {seed}: {model} x {sequence}, batch {batch}"
    write(cluster, cluster_of(random.Random(shape), None, 0))
    done = call("zorse-plan", *words, "--search-budget", 50, "--num-threads", 1, "--json", report, "--quiet")
    if done.returncode:
        return f"{text}: without limits: {done.stderr[-500:]}", False, False
    with open(report) as f:
        devices = json.load(f)["devices"]
    most = max(device["memory"]["total"] for device in devices)
    limits = [max(1 << 16, int(most * rng.uniform(0.03, 0.8))) for _ in devices]
    write(cluster, cluster_of(random.Random(shape), limits, rng.choice([0, 0, int(most * 4)])))
    done = call("zorse-plan", *words, "--num-threads", 1, "-o", plan, "--quiet")
    if done.returncode == 0:
        compiled = call("zorse-compile", *words, "--plan", plan, "--simulate-only", "--weights=defer", "--quiet", "-o", os.path.join(folder, f"{seed}.zorse"))
        return f"{text}: {compiled.stderr[-1000:]}", True, compiled.returncode == 0
    if "no plan fits the memory" not in done.stderr:
        return f"{text}: {done.stderr[-1000:]}", False, False
    for other in (2, 3):
        if call("zorse-plan", *words, "--num-threads", 1, "--seed", other, "--search-seconds", 20, "--quiet").returncode == 0:
            return f"{text}: no plan was said to fit, and seed {other} finds one", False, False
    return f"{text}: no plan fits", False, True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda seed: judge(seed, folder), range(given.first, given.first + given.count)))
    for text, _, ok in results:
        if not ok:
            print("FAIL", text)
    found, wrong = sum(f for _, f, _ in results), sum(not ok for _, _, ok in results)
    print(f"{len(results)} models, clusters and batches with little memory: {found} plans, all of which must compile; {len(results) - found} refused; {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
