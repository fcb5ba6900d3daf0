"""Flips bits of bundles, one at a time, in every file. Each run ends without a signal, with this result:

    digest unchanged      the digest detects it: exit code 1 and a message, before anything runs
    digest corrected      exit code 1 and a message, or bit-identical results. Information that a
                          bundle contains only once is not verified (docs/reference/bundle.md): weights, functions and a few numbers
                          of the summary may give other results, which are counted separately

    flipped_bundles.py [COUNT] [FIRST SEED]     default 400 from 0, over
                                                three bundles: one device, two pipelines on three devices, a split
                                                backward

Machine code is not flipped with a corrected digest: it is run unverified.
"""
import concurrent.futures
import json
import os
import random
import shutil
import sys
import tempfile

import numpy as np

import harness as z
from damaged_files import BATCH, LENGTH, MODEL, Outcome, parse, read, seal, sha256

STEPS = 3
# Information without redundancy. Fields of ModelSummary by their numbers in bundle.proto.
BELIEVED_FILES = ("functions.pb", "weights.json", "weights.safetensors")
BELIEVED_SUMMARY = {(7, 6): "bounds of an input", (7, 7): "bounds of an input", (7, 8): "labels that are ignored", (7, 9): "labels that are ignored", (7, 10): "role of an input",
                    (7, 11): "shift of labels", (8, 6): "factor of a loss", (42, 1): "reduction of a count"}


def changed_fields(before, after, path=()):
    """Paths of field numbers at which two messages differ."""
    found = set()
    for i in range(max(len(before), len(after))):
        a, b = (m[i] if i < len(m) else None for m in (before, after))
        if a == b:
            continue
        if a and b and a[0] == b[0] and isinstance(a[2], list) and isinstance(b[2], list):
            found |= changed_fields(a[2], b[2], path + (a[0],))
        else:
            found |= {path + (m[0],) for m in (a, b) if m}
    return found


def believed(file, before, after):
    """Why another result is not an error, or None."""
    if file in BELIEVED_FILES:
        return {"functions.pb": "functions"}.get(file, "weights")
    if file == "summary.pb":
        try:
            fields = {path[:2] for path in changed_fields(parse(before), parse(after))}
        except ValueError:
            return None
        return "summary" if fields and fields <= set(BELIEVED_SUMMARY) else None
    return None


class Bundle:
    def __init__(self, folder, name, devices, cells, **more):
        self.path = os.path.join(folder, name + ".zorse")
        z.compile(MODEL, self.path, z.cluster(folder, devices), BATCH, LENGTH, z.plan(folder, name, BATCH, devices, cells, **more))
        self.files = sorted(os.path.relpath(os.path.join(f, n), self.path) for f, _, names in os.walk(self.path) for n in names)
        self.bytes = {name: read(os.path.join(self.path, name)) for name in self.files}


class Flips:
    def __init__(self, folder):
        self.folder = folder
        self.bundles = [
            Bundle(folder, "one", ["a"], [(0, 6, 0, 4, "a")]),
            Bundle(folder, "pipelines", ["a", "b", "c"], [(0, 3, 0, 3, "a"), (3, 6, 0, 2, "b"), (3, 6, 2, 3, "a"), (0, 6, 3, 4, "c")]),
            Bundle(folder, "split", ["a", "b"], [(0, 3, 0, 2, "a"), (3, 6, 0, 2, "b"), (0, 3, 2, 4, "a"), (3, 6, 2, 4, "b")], split_backward=True)]
        ids = np.random.default_rng(0).integers(0, 32, (4 * BATCH, LENGTH)).astype(np.int64)
        for name in ("ids", "labels"):
            np.save(os.path.join(folder, name + ".npy"), ids)
        self.data = f"input_ids={folder}/ids.npy,labels={folder}/labels.npy"
        self.expected = []
        for number, bundle in enumerate(self.bundles):
            done, result = self.run(bundle.path, os.path.join(folder, f"reference-{number}"))
            if done.code != 0:
                raise z.Failure(done.text)
            self.expected.append(result)

    def run(self, bundle, folder):
        os.makedirs(folder, exist_ok=True)
        metrics, checkpoint = os.path.join(folder, "metrics"), os.path.join(folder, "checkpoint")
        done = Outcome(["zorse-run", bundle, "--data", self.data, "--max-steps", STEPS, "--metrics-file", metrics, "--save-weights", checkpoint, "--watchdog-timeout", 5, "--quiet"], folder)
        if done.code != 0:
            return done, None
        with open(metrics) as f:
            steps = [[m.get(key) for key in ("step", "loss", "gradient_norm")] for m in map(json.loads, f) if "loss" in m]
        return done, (steps, read(checkpoint))

    def flip(self, seed):
        """Returns (kind, verdict, description of the flip)."""
        rng = random.Random(seed)
        number = seed % len(self.bundles)
        bundle = self.bundles[number]
        sealed = rng.random() < 0.6
        # All files with equal probability, because small files are as dense in meaning as large ones.
        file = rng.choice([name for name in bundle.files if not sealed or (not name.startswith("kernels/") and name != "manifest.sha256")])
        data = bytearray(bundle.bytes[file])
        bit = rng.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        changed = {file: bytes(data)}
        if sealed:
            manifest = bundle.bytes["manifest.json"]
            if file == "manifest.json":
                manifest = changed[file]
            else:
                manifest = manifest.replace(sha256(bundle.bytes[file]).encode(), sha256(changed[file]).encode())
            changed.update({"manifest.json": manifest, "manifest.sha256": seal(manifest)})
        folder = os.path.join(self.folder, f"flip-{seed}")
        path = os.path.join(folder, "flipped.zorse")
        for name in bundle.files:
            os.makedirs(os.path.dirname(os.path.join(path, name)), exist_ok=True)
            if name in changed:
                with open(os.path.join(path, name), "wb") as f:
                    f.write(changed[name])
            else:
                os.link(os.path.join(bundle.path, name), os.path.join(path, name))
        done, result = self.run(path, folder)
        kind = ("sealed " if sealed else "") + file.split("/")[0]
        what = f"seed {seed}: bit {bit} of {os.path.basename(bundle.path)}/{file}, {'digest corrected' if sealed else 'digest unchanged'}"
        problem = done.problem()
        ran = done.code in (0, 3)  # 3: with non-finite numbers, which are reported and not written
        if not problem and ran and not sealed:
            problem = "is run"
        verdict = "refused"
        if not problem and ran:
            reason = believed(file, bundle.bytes[file], changed[file])
            verdict = "equal" if result == self.expected[number] else f"not verified: {reason}"
            if verdict != "equal" and not reason:
                problem = "gives another result"
                if file == "summary.pb":
                    problem += f" (fields {changed_fields(parse(bundle.bytes[file]), parse(changed[file]))})"
        if problem:
            keep = os.path.join(tempfile.gettempdir(), f"zorse-flipped-{seed}")
            shutil.rmtree(keep, ignore_errors=True)
            shutil.copytree(folder, keep)
            what += f": {problem}; kept as {keep}\n       " + "\n       ".join(l for l in done.text.splitlines()[-4:] if l.strip())
            verdict = "bad"
        shutil.rmtree(folder)
        return kind, verdict, what


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    table = {}
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        flips = Flips(folder)
        for kind, verdict, what in pool.map(flips.flip, range(first, first + count)):
            table.setdefault(kind, {}).setdefault(verdict, 0)
            table[kind][verdict] += 1
            if verdict == "bad":
                print(f"FAIL {what}", flush=True)
    sums = {}
    for kind in sorted(table, key=lambda k: (k.startswith("sealed"), k)):
        for verdict, n in table[kind].items():
            sums[verdict] = sums.get(verdict, 0) + n
        name = kind if not kind.startswith("sealed") else kind[7:] + ", digest made right"
        print(f"{name:38}" + ", ".join(f"{n} {verdict}" for verdict, n in sorted(table[kind].items())))
    other = sum(n for verdict, n in sums.items() if verdict.startswith("not verified"))
    bad = sums.get("bad", 0)
    print(f"{count} flipped bits of bundles: {sums.get('refused', 0)} refused, {sums.get('equal', 0)} with the same bits as before, {other} not verified and without a crash, {bad} bad")
    sys.exit(1 if bad or not count else 0)


if __name__ == "__main__":
    main()
