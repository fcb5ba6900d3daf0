"""Test bench of faults.py: bundles and data that its cases share, and operations and checks of a case."""
import json
import os
import time

import numpy as np

import harness as z
import jobs

BATCH, LENGTH, WORLD = 6, 8, 3
DEVICES = ("a", "b", "c")
MODEL = os.path.join(z.SMALL, "gpt-tiny-dropout.onnx")
LONG = 1000000  # more steps than any test runs
SOON = 2.0      # seconds within which all ranks know of a failure
JOIN = max(1, z.PATIENCE / 4)  # factor for the seconds in which ranks must join


class Skipped(Exception):
    pass


class Bench:
    """Bundles and data that the cases share; cases do not change them."""

    def __init__(self, folder):
        self.folder = folder
        clusters = z.cluster(folder, list(DEVICES))
        pipeline = z.plan(folder, "pipeline", BATCH, DEVICES, [(0, 2, s, s + 3, "a") for s in (0, 3)] + [(2, 4, s, s + 3, "b") for s in (0, 3)] + [(4, 6, s, s + 3, "c") for s in (0, 3)],
                          schedule="1f1b")
        shares = z.plan(folder, "shares", BATCH, DEVICES, [(0, 6, 0, 1, "a"), (0, 6, 1, 4, "b"), (0, 6, 4, 6, "c")])
        self.bundle, self.other_plan, self.sgd = (os.path.join(folder, name + ".zorse") for name in ("pipeline", "shares", "sgd"))
        adamw = {"optimizer": "adamw", "lr": "1e-2", "max-grad-norm": "0.5"}
        z.compile(MODEL, self.bundle, clusters, BATCH, LENGTH, pipeline, adamw)
        z.compile(MODEL, self.other_plan, clusters, BATCH, LENGTH, shares, adamw)
        z.compile(MODEL, self.sgd, clusters, BATCH, LENGTH, pipeline, {"optimizer": "sgd", "lr": "0.1", "max-grad-norm": "0"})
        self.by_step, self.by_group = (os.path.join(folder, name + ".zorse") for name in ("by-step", "by-group"))
        with open(pipeline) as f:
            plan = json.load(f)
        grouped = os.path.join(folder, "by-group.plan.json")
        with open(grouped, "w") as f:
            json.dump({**plan, "state": {"optimizer_in_backward": True}, "offload": [{"devices": ["b"], "parameters": "host", "optimizer_states": "host", "optimizer": "host"}]}, f)
        z.compile(MODEL, self.by_step, clusters, BATCH, LENGTH, pipeline, {**adamw, "max-grad-norm": "0"})
        z.compile(MODEL, self.by_group, clusters, BATCH, LENGTH, grouped, {**adamw, "max-grad-norm": "0"})
        self.data = self.tokens("train.bin", 1, 40 * BATCH * LENGTH)
        self.other_data = self.tokens("other.bin", 2, 40 * BATCH * LENGTH)

    def tokens(self, name, seed, count):
        path = os.path.join(self.folder, name)
        np.random.default_rng(seed).integers(0, 31, count).astype(np.uint16).tofile(path)
        return path

    def labelled(self, folder, empty):
        """Data in which the batches in `empty` (counted from 0) have no labels."""
        ids = np.random.default_rng(3).integers(0, 31, (20 * BATCH, LENGTH)).astype(np.int64)
        labels = ids.copy()
        for batch in empty:
            labels[batch * BATCH:(batch + 1) * BATCH] = -100
        np.save(os.path.join(folder, "ids.npy"), ids)
        np.save(os.path.join(folder, "labels.npy"), labels)
        return f"input_ids={folder}/ids.npy,labels={folder}/labels.npy"

    def words(self, steps, *more, bundle=None, data=None):
        return [bundle or self.bundle, "--data", data or self.data, "--max-steps", steps, "--seed", 5, *more]


class Case:
    def __init__(self, bench, folder):
        self.bench, self.folder, self.jobs = bench, folder, []
        self.snapshots = os.path.join(folder, "snapshots")
        self.checks, self.notes = [], []

    def job(self, words, launcher=True, **more):
        job = jobs.Job(self.folder, words, more.pop("world", WORLD), launcher, **more)
        self.jobs.append(job)
        return job

    def training(self, job, steps=1, seconds=60):
        self.check("trains", job.until(lambda: job.steps() >= steps or job.over(), seconds * z.PATIENCE) and not job.over(), job.error(0 if not job.launcher else "launcher")[-600:])

    def over(self, job, seconds, what="ends"):
        seconds *= z.PATIENCE
        begin = time.monotonic()
        good = job.until(job.over, seconds + 30)
        took = time.monotonic() - begin
        return self.check(what, good and took <= seconds, f"after {took:.1f} s of {seconds:g}")

    def check(self, what, good, detail=""):
        self.checks.append((what, bool(good), str(detail)))
        return bool(good)

    def says(self, what, text, *words):
        missing = [word for word in words if word not in text]
        return self.check(what, not missing, f"missing {missing} in: {text.strip()[-700:]}")

    def run(self, words, *way, code=0):
        """Runs to the end; returns (stdout, stderr)."""
        found, out, err = z.call("zorse-run", *words, *way, ok=False, timeout=90 * z.PATIENCE)
        self.check(f"exit code {code}", found == code, f"{found}: {err[-500:]}")
        return out, err

    def outcome(self, words, *way):
        """(metrics, parameters) of a successful run."""
        metrics, checkpoint = os.path.join(self.folder, f"{len(self.checks)}.jsonl"), os.path.join(self.folder, f"{len(self.checks)}.safetensors")
        self.run([*words, "--metrics-file", metrics, "--save-weights", checkpoint], *way)
        return jobs.metrics(metrics), jobs.content(checkpoint)

    def resumes(self, steps, *more, launcher=True):
        """Resumed up to `steps`, the run has the same result as an uninterrupted run."""
        taken = ["--checkpoint-dir", self.snapshots, "--resume", *more]
        metrics, parameters = self.outcome(self.bench.words(steps), "--in-process")
        found, resumed = self.outcome(self.bench.words(steps, *taken), "--spawn" if launcher else "--in-process")
        self.check("resumed bit-equal", resumed == parameters and found and found == metrics[len(metrics) - len(found):], f"{found[:1]} {metrics[-1:]}")


def name(rank):
    return f"rank {rank} (device {DEVICES[rank]})"


def take(case, every=1):
    return ["--checkpoint-dir", case.snapshots, "--save-interval", every]
