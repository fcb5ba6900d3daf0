"""Pause of an elastic job after the loss of a rank: GPT-2 124M on four CPU devices of one machine (needs PyTorch to make
the model: tools/python-env.sh).

    elastic_pause.py [--trials 3] [--batch 8] [--sequence 64] [--limit SECONDS] [--onnx an export made before] [--storage]

A rank is killed between two checkpoints in storage, when the standby bundles are there. Checkpoints in memory are
taken after every step (--storage: none, and the rank is killed right after a checkpoint). The figures are the time from
the kill to the end of the next step, minus a steady step of the new plan, the median of the trials; and the steps that
are trained again, at most one.
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import harness as z
import jobs

parser = argparse.ArgumentParser()
parser.add_argument("--trials", type=int, default=3)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--sequence", type=int, default=64)
parser.add_argument("--limit", type=float, default=1.0)
parser.add_argument("--onnx")
parser.add_argument("--storage", action="store_true")
a = parser.parse_args()
EVERY, AFTER = 4, 6


def lines(path):
    try:
        with open(path) as f:
            return [json.loads(line) for line in f if line.endswith("\n")]
    except (OSError, ValueError):
        return []


def until(found, seconds=300):
    end = time.monotonic() + seconds
    while not (value := found()):
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.005)
    return value


def trial(folder, bundle, data, rank):
    checkpoints, metrics = os.path.join(folder, "checkpoints"), os.path.join(folder, "metrics.jsonl")
    memory = [] if a.storage else ["--memory-checkpoint-interval", "1"]
    job = subprocess.Popen([os.path.join(z.BIN, "zorse-run"), bundle, "--data", data, "--max-steps", "1000", "--spawn", "--elastic", "--checkpoint-dir", checkpoints,
                            "--save-interval", str(EVERY), "--save-total-limit", "2", "--metrics-file", metrics, "--quiet", "--rejoin-seconds", "0", *memory], stderr=subprocess.DEVNULL)
    try:
        standby = lambda: len([name for folder, _, files in os.walk(checkpoints) for name in files if name == "manifest.sha256"]) >= 4
        until(standby)
        begin = len(lines(metrics))
        until(lambda: len(lines(metrics)) > begin + EVERY + 1)
        complete = lambda: {name for name in os.listdir(checkpoints) if os.path.exists(os.path.join(checkpoints, name, "index.json"))}
        before = complete()
        until(lambda: complete() - before)
        if not a.storage:
            begin = len(lines(metrics))
            until(lambda: len(lines(metrics)) > begin + 1)
        ranks = {jobs.environment_of(pid).get("ZORSE_RANK"): pid for pid in jobs.children_of(job.pid)}
        os.kill(ranks[str(rank)], signal.SIGKILL)
        killed = time.monotonic()
        reached = lines(metrics)[-1]["step"]
        change = until(lambda: [line for line in lines(metrics) if "devices" in line])[0]
        until(lambda: any("loss" in line and line["step"] == change["step"] + 1 for line in lines(metrics)[-2:]))
        whole = time.monotonic() - killed
        until(lambda: lines(metrics)[-1]["step"] >= change["step"] + AFTER)
        steps = [line["seconds"] for line in lines(metrics) if "loss" in line and line["step"] > change["step"]]
        steady = statistics.median(steps[2:])
        lost.append(reached - change["step"])
        print(f"rank {rank}: {lost[-1]} steps lost, {whole:.2f} s to the end of the next step ({change['pause_seconds']:.2f} s without training, first step {steps[0]:.2f} s, steady {steady:.2f} s)", flush=True)
        return whole - steady
    finally:
        job.kill()
        job.wait()


with tempfile.TemporaryDirectory() as folder:
    model = a.onnx or os.path.join(folder, "model.onnx")
    if not a.onnx:
        subprocess.run([sys.executable, os.path.join(z.ROOT, "models", "make_benchmark.py"), "gpt2-124m", model], check=True, capture_output=True)
    bundle, data = os.path.join(folder, "model.zorse"), os.path.join(folder, "data.bin")
    cluster = z.cluster(folder, ["a", "b", "c", "d"])
    z.compile(model, bundle, cluster, a.batch, a.sequence, extra=("--weights=reference", "--compile-all-functions"))
    np.random.default_rng(0).integers(0, 30000, a.batch * a.sequence * 64 + 1).astype(np.uint16).tofile(data)
    pauses, lost = [], []
    for number in range(a.trials):
        own = os.path.join(folder, str(number))
        os.mkdir(own)
        pauses.append(trial(own, bundle, data, number % 4))
    z.finish([z.check("steps trained again", max(lost), EVERY if a.storage else 1),
              z.check("seconds of the pause beyond a steady step", statistics.median(pauses), a.limit)])
