"""Trains plans with groups of devices: snapshots, weights from files, evaluation, processes, and wrong plans.

    tensor_parallel.py
"""
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

import harness as z

BATCH, LENGTH, UNITS = 8, 32, 8
GROUP = {"groups": [{"name": "g", "devices": ["a", "b"], "shares": [3, 1]}]}
CELLS = [(0, UNITS, s, s + 4, "g") for s in (0, 4)]


# Three replicas that divide all units at different places: into four, 2:1, and not at all.
DEGREES = {"groups": [{"name": "f", "devices": list("wxyz")}, {"name": "g", "devices": ["a", "b"], "shares": [2, 1]}, {"name": "h", "devices": ["c"]}]}
DEGREE_CELLS = [(0, UNITS, 0, 4, "f"), (0, UNITS, 4, 6, "g"), (0, UNITS, 6, 8, "h")]


def moved_elements(bundle, device, word):
    """(elements that collectives of state move, the least that they can): an element with n holders has to be moved n - 1 times."""
    moved = least = 0
    for line in z.call("zorse-inspect", bundle, f"--program={device}")[1].splitlines():
        if word not in line or "EXCHANGED" in line or " exchange" in line:
            continue
        runs = {name: [(who, int(a), int(b)) for who, a, b in re.findall(r"@(\w+) (\d+):(\d+)", body)] for name, body in re.findall(r"(shards|reads|terms) \[([^]]*)\]", line)}
        members = re.findall(r"@(\w+)", re.search(r"(?:readers|of) \[([^]]*)\]", line)[1])
        parts = runs.get("reads") or runs.get("terms")
        for owner, begin, end in runs["shards"]:
            holders = {who for who, a, b in parts if a <= begin and end <= b} if parts else set(members)
            moved += (end - begin) * len(holders - {owner})
            least += (end - begin) * (len(holders) - 1)
    return moved, least


def degrees(folder, one):
    """Replicas of degrees 4, 2 and 1."""
    bundle, plan = os.path.join(folder, "degrees.zorse"), z.plan(folder, "degrees", BATCH, list("abcwxyz"), DEGREE_CELLS, **DEGREES)
    z.compile(MODEL, bundle, z.cluster(folder, list("abcwxyz")), BATCH, LENGTH, plan)
    threads, processes = (os.path.join(folder, name) for name in ("threads.safetensors", "processes.safetensors"))
    found = z.run(bundle, DATA, 6, checkpoint=threads)
    z.run(bundle, DATA, 6, checkpoint=processes, extra=("--spawn",))
    first, second = z.safetensors(threads), z.safetensors(processes)
    results = [z.check("losses of degrees 4, 2, 1", z.relative([m["loss"] for m in found], [m["loss"] for m in one]), 1e-5),
               z.check("weights of processes that differ from those of threads", sum(not np.array_equal(first[k], second[k]) for k in first), 0)]
    for word in ("reduce_scatter", "all_gather"):
        moved, least = moved_elements(bundle, "c", word)
        print(f"{word}: {moved} elements moved, at least {least}")
        results.append(z.check(f"{word}: elements moved above the least, relative", moved / least - 1 if least else 1, 0.02))
    snapshots = os.path.join(folder, "degree-snapshots")
    z.run(bundle, DATA, 3, extra=("--checkpoint-dir", snapshots, "--save-interval", "3"))
    resumed = z.run(bundle, DATA, 6, extra=("--checkpoint-dir", snapshots, "--resume"))
    results.append(z.check("resumed loss of degrees, difference", abs(resumed[-1]["loss"] - found[-1]["loss"]), 0))
    results.append(mutants_are_rejected(bundle))
    return results


def resumes_between_degrees(folder, bundles, one):
    """A run that continues from another plan's checkpoint after every two steps: one device, degrees 4, 2, 1, one device, 3:1, degrees 4, 2, 1."""
    snapshots, results, losses = os.path.join(folder, "between"), [], []
    for turn, name in enumerate(("one", "degrees", "one", "group", "degrees")):
        words = ["--checkpoint-dir", snapshots, "--save-interval", "2"] + (["--resume"] if turn else [])
        losses += [m["loss"] for m in z.run(bundles[name], DATA, 2 * (turn + 1), extra=words)][-2:]
        exported = os.path.join(folder, f"between-{turn}.safetensors")
        z.call("zorse-export", snapshots, "-o", exported)
        results.append(z.check(f"names of exported weights of {name}", len(set(z.safetensors(exported)) ^ set(z.safetensors(os.path.join(folder, "whole.safetensors")))), 0))
    results.append(z.check("losses of a run that changes its plan", z.relative(losses, [m["loss"] for m in one]), 1e-5))
    return results


def mutants_are_rejected(bundle):
    mutants = subprocess.run([os.path.join(z.BIN, "exchange-mutants"), bundle], capture_output=True, text=True)
    print(mutants.stdout.strip()[-600:], mutants.stderr, flush=True)
    return mutants.returncode == 0


def refused(folder, name, message, cells=CELLS, devices=("a", "b"), **more):
    """Whether a plan is refused with a message."""
    path = z.plan(folder, name, BATCH, devices, cells, **more)
    code, out, err = z.compile(MODEL, os.path.join(folder, name + ".zorse"), z.cluster(folder, devices), BATCH, LENGTH, path, ok=False)
    text = out + err
    good = code == 1 and message in text
    print(f"{'ok  ' if good else 'FAIL'} {name} is refused{'' if good else ': ' + text[-400:]}", flush=True)
    return good


MODEL, DATA = os.path.join(z.SMALL, "gpt.onnx"), os.path.join(z.SMALL, "gpt.tokens.bin")


def main():
    results = []
    with tempfile.TemporaryDirectory() as folder:
        bundles = {}
        for name, devices, cells, more in (("one", ["a", "b"], [(0, UNITS, 0, BATCH, "a")], {}), ("group", ["a", "b"], CELLS, GROUP)):
            bundles[name] = os.path.join(folder, name + ".zorse")
            z.compile(MODEL, bundles[name], z.cluster(folder, devices), BATCH, LENGTH, z.plan(folder, name, BATCH, devices, cells, **more))
        whole = os.path.join(folder, "whole.safetensors"), os.path.join(folder, "group.safetensors")
        one = z.run(bundles["one"], DATA, 6, checkpoint=whole[0])
        group = z.run(bundles["group"], DATA, 6, checkpoint=whole[1])
        results.append(z.check("losses of a group", z.relative([m["loss"] for m in group], [m["loss"] for m in one]), 1e-5))
        expected, found = z.safetensors(whole[0]), z.safetensors(whole[1])
        results.append(z.check("names of weights", len(set(expected) ^ set(found)), 0))
        results.append(z.check("weights of a group", max(float(np.abs(found[k] - expected[k]).max()) for k in expected), 1e-4))

        # A device with a tenth has columns and classes, but no heads.
        uneven, shares = os.path.join(folder, "uneven.zorse"), {"groups": [{"name": "g", "devices": ["a", "b"], "shares": [9, 1]}]}
        z.compile(MODEL, uneven, z.cluster(folder, ["a", "b"]), BATCH, LENGTH, z.plan(folder, "uneven", BATCH, ["a", "b"], CELLS, **shares))
        results.append(z.check("losses of shares 9:1", z.relative([m["loss"] for m in z.run(uneven, DATA, 6)], [m["loss"] for m in one]), 1e-5))
        results.append(mutants_are_rejected(uneven))

        loaded = z.run(bundles["group"], DATA, 1, extra=("--load-weights", whole[0]))
        direct = z.run(bundles["one"], DATA, 1, extra=("--load-weights", whole[0]))
        results.append(z.check("weights from a file", z.relative([loaded[0]["loss"]], [direct[0]["loss"]]), 1e-6))

        snapshots = os.path.join(folder, "snapshots")
        z.run(bundles["group"], DATA, 3, extra=("--checkpoint-dir", snapshots, "--save-interval", "3"))
        resumed = z.run(bundles["group"], DATA, 6, extra=("--checkpoint-dir", snapshots, "--resume"))
        results.append(z.check("resumed loss, difference", abs(resumed[-1]["loss"] - group[-1]["loss"]), 0))

        results.append(mutants_are_rejected(bundles["group"]))
        results += degrees(folder, one)
        bundles["degrees"] = os.path.join(folder, "degrees.zorse")
        results += resumes_between_degrees(folder, bundles, z.run(bundles["one"], DATA, 10))

        # The planner divides a step of two samples over two nodes with fast links inside.
        nodes = os.path.join(folder, "nodes.yaml")
        with open(nodes, "w") as f:
            f.write("name: two\nnodes:\n  - {name: n, count: 2, devices: [{name: c, kind: cpu, flops_per_second: 1e9, count: 2}]}\n"
                    "links:\n  intra_node: {bandwidth: 100 GB/s, latency: 1 us}\n  inter_node: {bandwidth: 1 GB/s, latency: 50 us}\n")
        found, bundle = os.path.join(folder, "found.plan.json"), os.path.join(folder, "found.zorse")
        z.call("zorse-plan", MODEL, "--cluster", nodes, "--global-batch-size", 2, "--seq-length", LENGTH, "--tensor-parallel-size", 2, "--search-budget", 100, "--quiet", "-o", found)
        with open(found) as f:
            groups = json.load(f).get("groups", [])
        results.append(z.check("groups that the planner chose, other than 2", abs(len(groups) - 2), 0))
        z.compile(MODEL, bundle, nodes, 2, LENGTH, extra=("--tensor-parallel-size", 2))
        with open(os.path.join(bundle, "plan.json")) as f:
            results.append(z.check("groups in the bundle, other than 2", abs(len(json.load(f).get("groups", [])) - 2), 0))
        z.compile(MODEL, bundles["one"], z.cluster(folder, ["a"]), 2, LENGTH)
        one, group = (z.run(path, DATA, 6) for path in (bundles["one"], bundle))
        results.append(z.check("losses of the planner's groups", z.relative([m["loss"] for m in group], [m["loss"] for m in one]), 1e-5))

        results += [
            refused(folder, "alone", 'is divided by a group, and this cell belongs to no group: make its device a group, {"name": ..., "devices": ["a"]}', cells=[CELLS[0], (0, UNITS, 4, 8, "a")], **GROUP),
            refused(folder, "twice", "is in two groups", cells=[CELLS[0], (0, UNITS, 4, 8, "h")],
                    groups=[*GROUP["groups"], {"name": "h", "devices": ["b", "a"], "shares": [3, 1]}]),
        ]
    z.finish(results)


if __name__ == "__main__":
    main()
