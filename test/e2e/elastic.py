"""Disturbs elastic jobs at random: ranks are killed, frozen or asked to end, devices leave and join, also while the job
recovers, and the driver (zorse-run --elastic) is killed and started again with --resume. The job comes to its end, no step is missing,
and every segment between two changes has, bit by bit, the losses of its bundle in one process from the same state. Most
jobs also take checkpoints in memory; then at most one step is repeated after the loss of the driver.

    elastic.py [CHANGES] [--seed N]     default 200 changes
"""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import harness as z
import jobs

STEPS, EVERY, DEADLINE = 60, 3, 1.0
KINDS = ("kill",) * 4 + ("freeze",) * 2 + ("leave",) * 2 + ("join",) * 2 + ("kill while it recovers",) * 2 + ("driver",) * 3 + ("notice",) * 2
CLUSTER = os.path.join(z.ROOT, "models/clusters/four-unequal-cpus.yaml")
PLAN = os.path.join(z.ROOT, "models/clusters/four-unequal-cpus.gpt-bytes.plan.json")
DEVICES = ("big", "middle", "small0", "small1")


def make_bundle(folder):
    bundle, data = os.path.join(folder, "gpt.zorse"), os.path.join(folder, "data.txt")
    z.call("zorse-compile", os.path.join(z.ROOT, "models/small/gpt-bytes.onnx"), "--cluster", CLUSTER, "--plan", PLAN, "--global-batch-size", 16, "--seq-length", 64,
           "--lr", 1e-3, "-o", bundle)
    write_data(data)
    return bundle, data


def write_data(path):
    with open(path, "wb") as f:
        f.write(bytes(random.Random(5).choices(range(97, 123), k=200_000)))


class Trial:
    """One job with a few changes."""

    def __init__(self, folder, bundle, data, seed):
        self.folder, self.bundle, self.randoms = folder, bundle, random.Random(seed)
        self.checkpoints, self.metrics, self.listed = (os.path.join(folder, name) for name in ("checkpoints", "metrics.jsonl", "devices.txt"))
        self.words = ["--data", data, "--shuffle-seed", 3]
        self.problems, self.changes = [], []
        self.logged = []  # [(number of the change, rows of the steps before)] for each lost driver

    def list_devices(self, names):
        with open(self.listed + ".new", "w") as f:
            f.write("\n".join(names) + "\n")
        os.replace(self.listed + ".new", self.listed)

    def run(self):
        os.mkdir(self.checkpoints)
        present = list(DEVICES)
        self.list_devices(present)
        self.err = os.path.join(self.folder, "err.txt")
        words = [os.path.join(z.BIN, "zorse-run"), self.bundle, *map(str, self.words), "--max-steps", str(STEPS), "--spawn", "--elastic", "--checkpoint-dir", self.checkpoints,
                 "--save-interval", str(EVERY), "--save-total-limit", "1000", "--metrics-file", self.metrics, "--heartbeat-timeout", str(DEADLINE), "--heartbeat-interval", "0.1",
                 "--rejoin-seconds", "1.5", "--device-discovery-script", f"cat {self.listed}"]
        self.memory = os.path.join(self.folder, "memory") if self.randoms.random() < 0.7 else None
        if self.memory:
            os.mkdir(self.memory)
            words += ["--memory-checkpoint-interval", "1", "--memory-checkpoint-dir", self.memory]
        if self.randoms.random() < 0.5:  # as on several nodes; the command becomes the rank
            words += ["--start-command", "env NODE={node} sh -c"]
        self.process = self.start(words)
        try:
            self.disturb(words, present)
            self.code = self.process.wait(timeout=180 * z.PATIENCE)
        except subprocess.TimeoutExpired:
            self.code = None
            self.process.kill()
            self.process.wait()

    def start(self, words):
        with open(self.err, "ab") as err:
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err)

    def disturb(self, words, present):
        """Makes up to four changes, the first ones before the standby bundles are there."""
        for number in range(self.randoms.randrange(1, 5)):
            time.sleep(self.randoms.choice((0.8, 1.5, 2.5) if number else (0.2, 0.8, 1.5, 2.5)) * (0.5 + self.randoms.random()))
            kind = self.randoms.choice(KINDS)
            if self.process.poll() is not None:
                return
            if kind == "driver":  # its ranks may still be there when the next one starts
                self.process.kill()
                self.process.wait()
                self.logged.append((number, self.rows()))
                self.process = self.start([*words, "--resume"])
            elif kind == "leave" and len(present) > 2:
                present.remove(self.randoms.choice(present))
                self.list_devices(present)
            elif kind == "join" and len(present) < len(DEVICES):
                present.append(next(name for name in DEVICES if name not in present))
                self.list_devices(present)
            else:
                kind = "kill" if kind in ("leave", "join") else kind
                if not self.signal_rank({"freeze": signal.SIGSTOP, "notice": signal.SIGTERM}.get(kind, signal.SIGKILL)):
                    continue
            self.changes.append(kind)
            if kind == "kill while it recovers":
                time.sleep(self.randoms.random() * 0.4)
                self.signal_rank(signal.SIGKILL)

    def signal_rank(self, number):
        ranks = [pid for pid in jobs.children_of(self.process.pid) if "ZORSE_RANK" in jobs.environment_of(pid)]
        if not ranks:
            return False
        try:
            os.kill(self.randoms.choice(ranks), number)
        except ProcessLookupError:
            return False
        return True

    def rows(self):
        """{step: seconds} of the metrics so far; the last line may be incomplete."""
        if not os.path.exists(self.metrics):
            return {}
        with open(self.metrics) as f:
            return {row["step"]: row["seconds"] for row in map(json.loads, f.read().split("\n")[:-1]) if "loss" in row}

    def check_lost_drivers(self):
        """With a checkpoint in memory after every step, at most the last one is repeated; also one for each later change."""
        final = self.rows()
        for number, before in self.logged if self.memory else ():
            repeated = [step for step, seconds in before.items() if final[step] != seconds]
            if len(repeated) > len(self.changes) - number:
                self.problems.append(f"steps {repeated} of {max(before)} repeated after the loss of the driver")

    def segments(self):
        """[(names of the devices, slowdowns that the plan knows, last step before)] of all starts that trained."""
        with open(self.metrics) as f:
            changes = [row for row in map(json.loads, f) if "devices" in row]
        return [(DEVICES, {}, 0)] + [(tuple(row["devices"]), row["slowdowns"], row["step"]) for row in changes]

    def bundle_of(self, names, slowdowns):
        if names == DEVICES and not slowdowns:
            return self.bundle
        for folder in os.listdir(self.checkpoints):
            if folder.startswith("standby-"):
                for name in os.listdir(os.path.join(self.checkpoints, folder)):
                    path = os.path.join(self.checkpoints, folder, name)
                    if name.endswith(".zorse"):
                        with open(os.path.join(path, "manifest.json")) as manifest, open(os.path.join(path, "cluster.yaml")) as cluster:
                            slow = {device: float(times) for device, times in re.findall(r"name: ([^,]+), .*slowdown: ([0-9.]+)", cluster.read())}
                            if tuple(device["name"] for device in json.load(manifest)["devices"]) == names and slow == slowdowns:
                                return path
        raise AssertionError(f"no bundle for {names}, {slowdowns}")

    def check(self):
        if self.code != 0:
            with open(self.err, errors="replace") as f:
                return self.problems.append(f"exit code {self.code}: {f.read()[-600:]}")
        rows = {row["step"]: row for row in jobs.metrics(self.metrics) if "loss" in row}
        if sorted(rows) != list(range(1, STEPS + 1)):
            return self.problems.append(f"steps {sorted(rows)}")
        if self.memory and os.listdir(self.memory):
            self.problems.append(f"left in memory: {os.listdir(self.memory)}")
        self.check_lost_drivers()
        segments = self.segments()
        first = [begin for *_, begin in segments] + [STEPS]
        for i, (names, slowdowns, begin) in enumerate(segments):
            if min(first[i + 1:]) > begin:
                self.check_segment(i, (names, slowdowns), begin, min(first[i + 1:]), rows)

    def check_segment(self, number, variant, begin, end, rows):
        """Repeats a segment in one process, from the state after the segments before it."""
        states, metrics = (os.path.join(self.folder, name) for name in ("states", f"segment{number}.jsonl"))
        z.call("zorse-run", self.bundle_of(*variant), *self.words, "--max-steps", end, "--in-process", "--quiet", "--metrics-file", metrics, "--checkpoint-dir", states, "--resume")
        for row in jobs.metrics(metrics):
            if "loss" in row and begin < row["step"] <= end and row != rows[row["step"]]:
                self.problems.append(f"step {row['step']} on {', '.join(variant[0])}: {rows[row['step']]}, expected {row}")
                return


def few_devices(folder, bundle, data):
    """With fewer than --min-devices, the job waits for the device to be tried again, or ends if it never is."""
    for rejoin, good in (("1.5", True), ("0", False)):
        own = os.path.join(folder, "few" + rejoin)
        words = ["--data", data, "--max-steps", STEPS, "--spawn", "--elastic", "--checkpoint-dir", own, "--save-interval", EVERY, "--min-devices", 4, "--rejoin-seconds", rejoin]
        with subprocess.Popen([os.path.join(z.BIN, "zorse-run"), bundle, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            end = time.monotonic() + 60 * z.PATIENCE
            while not any(name.startswith("step-") for name in (os.listdir(own) if os.path.isdir(own) else ())) and time.monotonic() < end:
                time.sleep(0.02)
            ranks = [pid for pid in jobs.children_of(process.pid) if "ZORSE_RANK" in jobs.environment_of(pid)]
            os.kill(ranks[1], signal.SIGKILL)
            said = process.communicate(timeout=120 * z.PATIENCE)[1]
        fine = "3 of 4 devices are available, fewer than --min-devices 4" in said and (process.returncode == 0 and "waiting at most" in said if good else process.returncode != 0 and "--resume" in said)
        print(f"{'ok  ' if fine else 'FAIL'} fewer than --min-devices, tried again after {rejoin} s: exit code {process.returncode}" + ("" if fine else ": " + said[-600:]), flush=True)
        yield fine


def ended_in_memory(folder, bundle, data):
    """A job dies with its state in memory only; the next one has no step left to train, and saves that state."""
    own, memory, metrics = (os.path.join(folder, name) for name in ("ended", "ended-memory", "ended.jsonl"))
    os.mkdir(memory)

    def words(steps):
        return ["zorse-run", bundle, "--data", data, "--max-steps", steps, "--spawn", "--checkpoint-dir", own, "--save-interval", 1000, "--metrics-file", metrics,
                "--memory-checkpoint-interval", 1, "--memory-checkpoint-dir", memory, "--resume"]

    def steps_done():
        with open(metrics) as f:
            return [json.loads(line)["step"] for line in f.read().split("\n")[:-1]]

    with subprocess.Popen([os.path.join(z.BIN, "zorse-run"), *map(str, words(100000)[1:])], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        end = time.monotonic() + 60 * z.PATIENCE
        while time.monotonic() < end and not (os.path.exists(metrics) and len(steps_done()) >= 10):
            time.sleep(0.01)
        process.kill()
    stored = [name for name in os.listdir(own) if name.startswith("step-")]
    done = steps_done()[-1]
    said = z.call(*words(1))[2]
    saved = [int(name[5:13]) for name in os.listdir(own) if name.startswith("step-")]
    resumed = z.call(*words(done + 3))[1]
    good = not stored and "nothing to do" in said and saved in ([done - 1], [done], [done + 1]) and f"resumed after step {saved[0]}" in resumed and not os.listdir(memory)
    print(f"{'ok  ' if good else 'FAIL'} no step left, and the state of step {done} is in memory: checkpoints {stored} before, {saved} after" + ("" if good else f": {said[-300:]} {resumed[-300:]}"))
    yield good


def refusals(bundle, data):
    common = ["zorse-run", bundle, "--data", data, "--max-steps", 5]
    for words, expected in ((["--elastic"], "--elastic needs --spawn"), (["--elastic", "--spawn"], "--elastic needs --checkpoint-dir DIR and --save-interval N"),
                            (["--spawn", "--min-devices", 2], "--min-devices needs --elastic"), (["--elastic", "--spawn", "--max-restarts", 2], "--max-restarts")):
        code, _, err = z.call(*common, *words, ok=False)
        good = code == 1 and expected in err
        print(f"{'ok  ' if good else 'FAIL'} {' '.join(map(str, words))}: {err.strip()[:160]}")
        yield good


def main():
    wanted = int(next((word for word in sys.argv[1:] if word.isdigit()), 200))
    seed = int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else 1
    counts, bad, made, segments = {}, 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        bundle, data = make_bundle(folder)
        results = [*refusals(bundle, data), *few_devices(folder, bundle, data), *ended_in_memory(folder, bundle, data)]
        while made < wanted:
            own = os.path.join(folder, str(seed))
            os.mkdir(own)
            trial = Trial(own, bundle, data, seed)
            trial.run()
            trial.check()
            for kind in trial.changes:
                counts[kind] = counts.get(kind, 0) + 1
            made += len(trial.changes)
            segments += len(trial.segments())
            bad += bool(trial.problems)
            print(f"{'FAIL' if trial.problems else 'ok  '} seed {seed}: {', '.join(trial.changes) or 'no change'}" + "".join("\n     " + problem for problem in trial.problems), flush=True)
            if not trial.problems:
                shutil.rmtree(own)
            seed += 1
    print(", ".join(f"{count} x {kind}" for kind, count in sorted(counts.items())))
    z.finish([*results, z.check(f"jobs that are wrong, of {made} changes and {segments} segments", bad, 0)])


if __name__ == "__main__":
    main()
