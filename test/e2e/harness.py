"""Shared functions of the end-to-end tests: call the tools, read their outputs, compare gradients.

Uses the tools in ZORSE_BIN, or in build/release/bin if it is not set. Needs only Python 3 and numpy.
"""
import json
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BIN = os.environ.get("ZORSE_BIN", os.path.join(ROOT, "build", "release", "bin"))
# Factor by which a loaded machine (CTest) or a sanitizer may exceed time limits. Evidence claims are measured without
# it.
PATIENCE = float(os.environ.get("ZORSE_TEST_PATIENCE", 1))
# Sanitizer builds need much more address space and time.
SANITIZED = bool(os.environ.get("ZORSE_TEST_SANITIZER"))
SMALL = os.path.join(ROOT, "models", "small")
ADAMW = {"optimizer": "adamw", "lr": "3e-4", "warmup-steps": "10", "max-grad-norm": "1.0", "betas": "0.9,0.95", "eps": "1e-8", "weight-decay": "0.1"}
SGD = {"optimizer": "sgd", "lr": "1e-2"}


class Failure(Exception):
    pass


class Ports(str):
    """The first of `count` consecutive ports, reserved for this test while the object lives. The ports are bound but
    not listening: no other program gets them, but a program that is given the number can use it (with SO_REUSEADDR,
    as Zorse and PyTorch do)."""

    def __new__(cls, count=1):
        randoms = random.Random(os.urandom(8))
        for _ in range(1000):
            first, sockets = randoms.randrange(20000, 32000), []  # below the ephemeral ports
            try:
                for port in range(first, first + count):
                    sockets.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
                    sockets[-1].bind(("", port))  # without SO_REUSEADDR: the port must be free
                for s in sockets:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            except OSError:
                for s in sockets:
                    s.close()
                continue
            self = super().__new__(cls, first)
            self.first, self.last, self.sockets = first, first + count - 1, sockets
            return self
        raise Failure(f"no {count} ports in a row are free")

    def __del__(self):
        for s in getattr(self, "sockets", []):
            s.close()


def call(*words, ok=True, timeout=600 * max(1, PATIENCE / 4)):
    """Runs a tool; returns (exit code, stdout, stderr). With ok=True a failure raises an error with the tool's output."""
    words = [os.path.join(BIN, words[0])] + [str(w) for w in words[1:]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout)
    if ok and done.returncode != 0:
        raise Failure(f"{' '.join(words)}\nexit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.returncode, done.stdout, done.stderr


def cluster(folder, devices, nodes=None):
    """A cluster file; devices: list of names or (name, speed) pairs; nodes: lists of names, default one node."""
    speeds = dict((d, 1e10) if isinstance(d, str) else d for d in devices)
    nodes = nodes or [list(speeds)]
    path = os.path.join(folder, "cluster-" + "_".join("-".join(node) for node in nodes) + ".yaml")
    with open(path, "w") as f:
        f.write("name: test\nnodes:\n")
        for i, node in enumerate(nodes):
            f.write(f"  - name: here{i or ''}\n    devices:\n")
            for name in node:
                f.write(f"      - {{ name: {name}, kind: cpu, flops_per_second: {speeds[name]}, memory: 2GiB, threads: 1 }}\n")
    return path


def plan(folder, name, batch, devices, cells, **more):
    """cells: (first unit, end unit, first sample, end sample, device name)."""
    path = os.path.join(folder, name + ".plan.json")
    with open(path, "w") as f:
        json.dump({"format": 2, "global_batch_size": batch, "devices": list(devices),
                   "cells": [{"units": [a, b], "samples": [s, t], "device": d} for a, b, s, t, d in cells], **more}, f)
    return path


def random_groups(summary, devices, batch, seed, path):
    """Writes a random plan for `devices` devices, each replaced by a group (with_groups)."""
    call("random-plan", summary, devices, batch, seed, path)
    with open(path) as f:
        made = with_groups(json.load(f), seed)
    with open(path, "w") as f:
        json.dump(made, f)


def remedied(path, message):
    """Changes a plan with groups as the error message says. Returns whether it names a remedy: to keep activations, or more equal shares."""
    with open(path) as f:
        made = json.load(f)
    if "exchange different values" in message:
        for place in (made, *made["cells"]):
            place.pop("activations", None)
    elif "more equal shares" in message:
        for group in made["groups"]:
            group.pop("shares", None)
    else:
        return False
    with open(path, "w") as f:
        json.dump(made, f)
    return True


def with_groups(plan, seed):
    """The plan with a group in place of each device d, of the devices da and db. In half of the plans, groups have one
    device or two, and different shares, so that they divide a unit at different places. State belongs to the parts
    of parameters, so its owners are the default."""
    draw = random.Random(seed)
    equal = [1, 1] if seed % 4 < 2 else [2, 1]
    if seed % 5 < 2:
        plan["activations"] = ("recompute", "offload")[seed % 5]
        for cell in plan["cells"]:
            cell.pop("activations", None)
    devices = [d["name"] if isinstance(d, dict) else d for d in plan["devices"]]
    plan["devices"] = [d + half for d in devices for half in "ab"]
    shares = {d: equal if seed % 8 < 4 else draw.choice(([1], [1, 1], [2, 1], [1, 9])) for d in devices}
    plan["groups"] = [{"name": d, "devices": [d + half for _, half in zip(shares[d], "ab")], "shares": shares[d]} for d in devices if any(c["device"] == d for c in plan["cells"])]
    for name in ("durations", "links"):
        plan.pop(name, None)
    plan.get("state", {}).pop("groups", None)
    names = {group["name"] for group in plan["groups"]}
    for key in ("order", "warmup_forwards"):
        if isinstance(plan.get("schedule"), dict) and key in plan["schedule"]:
            plan["schedule"][key] = {name: of for name, of in plan["schedule"][key].items() if name in names}
    for rule in plan.get("offload", []):
        rule.pop("groups", None)
        if "devices" in rule:
            rule["devices"] = [d + half for d in rule["devices"] for half in "ab"]
    return plan


def compile(model, bundle, cluster_file, batch, sequence, plan_file=None, training=ADAMW, precision="f32", ok=True, extra=()):
    words = ["zorse-compile", model, "--cluster", cluster_file, "--global-batch-size", batch, "--seq-length", sequence, "--precision", precision, "--quiet", "-o", bundle]
    if plan_file:
        words += ["--plan", plan_file]
    for key, value in training.items():
        words += [f"--{key}={value}"]
    return call(*words, *extra, ok=ok)


def run(bundle, data, steps, gradients=None, checkpoint=None, ok=True, extra=()):
    """Trains; returns the metrics as a list of dictionaries, one per step."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as metrics:
        words = ["zorse-run", bundle, "--data", data, "--max-steps", steps, "--metrics-file", metrics.name]
        if gradients:
            words += ["--dump-gradients", gradients]
        if checkpoint:
            words += ["--save-weights", checkpoint]
        call(*words, *extra, ok=ok)
        with open(metrics.name) as f:
            return [m for m in map(json.loads, f) if "loss" in m]


DTYPES = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "F16": np.float16}


def safetensors(path):
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(length))
        data = f.read()
    out = {}
    for name, t in header.items():
        if name != "__metadata__":
            a, b = t["data_offsets"]
            out[name] = np.frombuffer(data[a:b], DTYPES[t["dtype"]]).reshape(t["shape"])
    return out


def gradient_error(found, expected):
    """Largest ‖g − ĝ‖ / (‖ĝ‖ + 1e-3·‖all ĝ‖) over the tensors found, and its name."""
    total = np.sqrt(sum(float(np.sum(np.square(g.astype(np.float64)))) for g in expected.values()))
    worst = (0.0, "")
    for name, g in found.items():
        if name not in expected:
            raise Failure(f"gradient '{name}' is not among the reference's: {sorted(expected)[:5]} ...")
        e = expected[name].astype(np.float64)
        worst = max(worst, (float(np.linalg.norm(g.astype(np.float64) - e) / (np.linalg.norm(e) + 1e-3 * total)), name))
    return worst


def all_gradients_error(found, expected, limit):
    """gradient_error of the common tensors. Raises Failure for a tensor that only one side has, unless it is zero (up
    to `limit` of all) or tied, because ties have one name."""
    known = {n: g for n, g in found.items() if n in expected}
    strangers = {n for n, g in found.items() if n not in expected and np.abs(g).max(initial=0) > 0}
    if strangers or not known:
        raise Failure(f"gradients of parameters that PyTorch has none for: {sorted(strangers)[:3]}")
    total = np.sqrt(sum(float(np.sum(np.square(g))) for g in expected.values()))
    for missing in set(expected) - set(found):
        if np.linalg.norm(expected[missing]) > limit * total and not any(np.array_equal(expected[missing], expected[n]) for n in known):
            raise Failure(f"no gradient of '{missing}'")
    return gradient_error(known, expected)


def relative(a, b):
    """Largest relative difference of two equally long series."""
    if len(a) != len(b):
        raise Failure(f"{len(a)} steps, expected {len(b)}")
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("inf")
    return float(np.max(np.abs(a - b) / np.maximum(np.abs(b), 1e-30)))


closest = {}  # all checked figures: limit -> (largest share of the limit, value, name)


def check(name, value, limit):
    """Prints one figure and fails if it exceeds its limit."""
    good = value <= limit
    closest[limit] = max(closest.get(limit, (0.0, "", 0.0)), (value / limit if limit else float(value > 0), name, value))
    print(f"{'ok  ' if good else 'FAIL'} {name}: {value:.3g} (limit {limit:g})", flush=True)
    return good


def finish(results, figure=""):
    """Ends the test. The last line is for the evidence: number of passed cases, `figure`, and for each limit the worst
    figure that was checked."""
    bad = sum(not r for r in results)
    worst = [f"{name} {value:.2g} (limit {limit:g})" for limit, (_, name, value) in sorted(closest.items()) if not figure]
    said = figure or ("worst: " + ", ".join(worst) if worst else "")
    print(f"{len(results) - bad} of {len(results)} hold" + (f"; {said}" if said else ""))
    sys.exit(1 if bad or not results else 0)
