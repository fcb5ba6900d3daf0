"""Kills compiles and exports: the output is either the old or the new one, complete, and the next run removes the
temporary files of a killed run.

    killed_outputs.py [COUNT] [--seed N]     default 200 kills: half of
                                             zorse-compile, most of them while it writes the bundle, half of
                                             zorse-export
"""
import glob
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

import harness as z

GPT, DATA = os.path.join(z.SMALL, "gpt.onnx"), os.path.join(z.SMALL, "gpt.tokens.bin")


def digest(path):
    """The content of a file, or of a bundle with files that match its manifest; otherwise the reason why it is invalid."""
    if os.path.isfile(path):
        with open(path, "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()
    try:
        manifest = open(os.path.join(path, "manifest.json"), "rb").read()
        for name, expected in json.loads(manifest)["files"].items():
            with open(os.path.join(path, name), "rb") as f:
                if hashlib.sha256(f.read()).hexdigest() != expected:
                    return f"{name} does not match the manifest"
        return hashlib.sha256(manifest).hexdigest()
    except (OSError, ValueError) as error:
        return str(error)


class Target:
    """An output that two commands write alternately with different contents."""

    def __init__(self, folder, name, commands):
        self.path, self.commands = os.path.join(folder, name), commands
        self.drafts = [os.path.join(folder, f".{name}.writing.*"), self.path + ".writing.*"]
        self.digests, self.seconds = [], []
        for command in commands:
            begin = time.monotonic()
            z.call(*command, "-o", self.path)
            self.seconds.append(time.monotonic() - begin)
            self.digests.append(digest(self.path))
        assert self.digests[0] != self.digests[1]

    def left(self):
        return [p for pattern in self.drafts for p in glob.glob(pattern)]

    def kill(self, which, rng):
        """(whether the command was killed, content of the output)"""
        command = [os.path.join(z.BIN, self.commands[which][0]), *map(str, self.commands[which][1:]), "-o", self.path]
        before = set(self.left())
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120 * z.PATIENCE
        if rng.random() < 0.8:  # after it begins to write
            while process.poll() is None and not set(self.left()) - before and time.monotonic() < deadline:
                time.sleep(0.0002)
            time.sleep(rng.choice((0, 0.001, 0.003, 0.01, 0.03)) * rng.random())
        else:
            time.sleep(self.seconds[which] * rng.random())
        process.send_signal(signal.SIGKILL)
        return process.wait() == -signal.SIGKILL, digest(self.path)


def main():
    numbers = [int(w) for w in sys.argv[1:] if w.isdigit()]
    count = numbers[0] if numbers else 200
    rng = random.Random(int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else 1)
    with tempfile.TemporaryDirectory(prefix="zorse-killed-") as folder:
        cluster = z.cluster(folder, ["a", "b"])
        compile = lambda rate: ["zorse-compile", GPT, "--cluster", cluster, "--global-batch-size", 8, "--seq-length", 16, "--quiet", f"--lr={rate}"]
        bundle, snapshots = Target(folder, "b.zorse", [compile("1e-3"), compile("2e-3")]), os.path.join(folder, "snapshots")
        z.call("zorse-run", bundle.path, "--data", DATA, "--max-steps", 2, "--checkpoint-dir", snapshots, "--save-interval", 1, "--quiet")
        taken = sorted(glob.glob(os.path.join(snapshots, "step-*")))
        export = lambda *more: [["zorse-export", snapshot, *more] for snapshot in taken]
        targets = [bundle, Target(folder, "w.safetensors", export()), bundle, Target(folder, "w.onnx", export("--onnx", GPT))]
        bad, killed, found = [], 0, {}
        attempts = 0
        while killed < count and attempts < 5 * count:  # runs that end before they are killed do not count
            i, attempts = attempts, attempts + 1
            target, which = targets[i % len(targets)], i // len(targets) % 2
            was_killed, now = target.kill(which, rng)
            killed += was_killed
            good = now in target.digests if was_killed else now == target.digests[which]
            state = "new" if now == target.digests[which] else "old"
            found[state] = found.get(state, 0) + (was_killed and good)
            if not good:
                bad.append(f"kill {i} of {os.path.basename(target.path)}: {now}")
                print("FAIL", bad[-1], flush=True)
        for target in targets:
            z.call(*target.commands[0], "-o", target.path)
            if target.left() or digest(target.path) != target.digests[0]:
                bad.append(f"{os.path.basename(target.path)}: {target.left()}")
                print("FAIL the next run removes temporary files:", bad[-1], flush=True)
    z.finish([not bad and killed == count], f"{killed} of {count} kills: the old output was there {found.get('old', 0)} times, the new one {found.get('new', 0)} times, neither {len(bad)} times")


if __name__ == "__main__":
    main()
