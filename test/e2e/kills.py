"""Kills random ranks at random times under random plans: the other ranks end in time and name the killed one, no
process is left, and the resumed run is bit-identical to an uninterrupted run.

    kills.py [COUNT] [--seed N] [--workers N]     default 200 kills
    kills.py COUNT --tiers     under plans that keep state on the hosts, also while it is
                               stored there; most runs resume under a plan with other memory placement

Most jobs are started by zorse-run --spawn, some rank by rank by this script, so that the coordinator dies with rank
0. Sometimes the launcher itself is killed, sometimes it restarts the job. Kill times: before a rank has joined, while
it joins, in the first step, in a later one, in an evaluation, while a snapshot is copied, written, acknowledged,
between the first acknowledgement and the index, and while ranks leave.
"""
import os
import random
import re
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time

import harness as z
import jobs
import many_plans

STEPS, EVERY, LIMIT, JOIN = 16, 2, 2.0 * z.PATIENCE, 5.0 * max(1, z.PATIENCE / 4)
NAMES = ("before joining", "while joining", "in the first step", "in a later step", "in an evaluation", "while a snapshot is copied", "while a snapshot is written",
         "at the first acknowledgement", "before the index", "at the index", "while ranks leave")
TIERS = "--tiers" in sys.argv
if TIERS:
    NAMES = ("while state is stored",) * 6 + NAMES[3:]
HOW = ("launcher",) * 9 + ("ranks",) * 6 + ("the launcher itself",) * 2 + ("restart",) * 3


def option(name, default):
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else default


class Plan:
    def __init__(self, folder, name, bundle, data, extra, others=()):
        self.name, self.bundle, self.others = name, bundle, list(others)
        shuffle = [] if "--shuffle-seed" in extra else ["--shuffle-seed", 3]
        self.words = [bundle, "--data", data, "--max-steps", STEPS, "--eval-data", data, "--eval-interval", 4, "--eval-iters", 1, *extra, *shuffle]
        metrics, checkpoint = os.path.join(folder, "reference.jsonl"), os.path.join(folder, "reference.safetensors")
        begin = time.monotonic()
        z.call("zorse-run", *self.words, "--in-process", "--quiet", "--metrics-file", metrics, "--save-weights", checkpoint)
        self.seconds = time.monotonic() - begin
        self.metrics, self.checkpoint = jobs.metrics(metrics), jobs.content(checkpoint)
        self.devices = devices_of(name, bundle)
        os.remove(metrics)
        os.remove(checkpoint)


def devices_of(name, bundle):
    """Device names by rank: many_plans names them d0, d1, ... and a, b, ..."""
    if name.startswith("random"):
        return [f"d{i}" for i in range(int(re.search(r"(\d+) devices", name).group(1)))]
    return list(re.search(r"-([a-f]+)-\d+-\d+\.zorse$", bundle).group(1))


def first_difference(a, b):
    return next(((x, y) for x, y in zip(a, b) if x != y), (len(a), len(b)))


def await_moment(job, name, randoms):
    """Waits for the kill time; returns False if the job ended before."""
    out = lambda pattern: any(re.match(pattern, line) for line in job.lines)
    event = lambda test: any(test(what, path) for what, path in job.events)
    step = randoms.randrange(1, STEPS)
    number = f"step-{EVERY * randoms.randrange(1, STEPS // EVERY + 1):08d}"
    at = {
        "before joining": (lambda: len(job.processes) > 0, 0.03),
        "while joining": (lambda: len(job.processes) == job.world, 0.3),
        "in the first step": (lambda: out(r".* samples an epoch"), 0.03),
        "in a later step": (lambda: job.steps() >= step, 0.02),
        "while state is stored": (lambda: job.steps() >= step, getattr(job, "seconds", 0) / STEPS),  # at any time of a step: state is copied during much of it
        "in an evaluation": (lambda: job.steps() >= step // 4 * 4 + 4, 0.003),
        "while a snapshot is copied": (lambda: job.steps() >= max(EVERY, step // EVERY * EVERY), 0.002),
        "while a snapshot is written": (lambda: event(lambda what, path: number in path and path.endswith(".writing")), 0.004),
        "at the first acknowledgement": (lambda: event(lambda what, path: number in path and path.endswith(".safetensors") and what == "moved"), 0.001),
        "before the index": (lambda: event(lambda what, path: number in path and path.endswith("index.json.writing")), 0.0005),
        "at the index": (lambda: event(lambda what, path: number in path and path.endswith("index.json") and what == "moved"), 0.003),
        "while ranks leave": (lambda: job.steps() >= STEPS, 0.06),
    }[name]
    job.until(lambda: at[0]() or job.over(), 60 * z.PATIENCE)
    job.spend(randoms.random() * at[1])
    return not job.over()


class Case:
    def __init__(self, folder, plan, how, moment, seed):
        self.folder, self.plan, self.how, self.moment, self.seed = folder, plan, how, moment, seed
        self.snapshots, self.metrics, self.checkpoint = (os.path.join(folder, name) for name in ("snapshots", "metrics.jsonl", "checkpoint.safetensors"))
        self.randoms = random.Random(seed)
        self.problems, self.delay, self.resumed, self.joined, self.job, self.name = [], 0.0, 0, True, None, None

    def words(self, *more):
        return self.plan.words + ["--checkpoint-dir", self.snapshots, "--save-interval", EVERY, "--metrics-file", self.metrics, "--save-weights", self.checkpoint, *more]

    def expect(self, good, text):
        if not good:
            self.problems.append(text)

    def run(self):
        """Returns False if the kill time was missed."""
        os.mkdir(self.snapshots)
        more = ["--max-restarts", 1] if self.how == "restart" else ["--rdzv-timeout", JOIN] if self.how == "ranks" else []
        delays = {"ZORSE_TEST_DELAYS": f"{self.seed % 1000},{self.randoms.choice((1, 4))}"} if self.randoms.random() < 0.3 else {}
        self.job = job = jobs.Job(self.folder, self.words(*more), len(self.plan.devices), self.how != "ranks", watch=self.snapshots, environment=delays)
        job.seconds = self.plan.seconds
        try:
            if not await_moment(job, self.moment, self.randoms) or not self.kill():
                return False
            self.watch_end()
        finally:
            job.close()
        self.check_snapshots()
        if self.how != "restart":
            self.resume()
        self.compare()
        return True

    def kill(self):
        job = self.job
        if self.how == "the launcher itself":
            self.victim, victim = None, job.head
        else:
            self.victim = self.randoms.randrange(job.world)
            if not job.until(lambda: self.victim in job.processes or job.over(), 5) or self.victim not in job.processes:
                return False
            victim = job.processes[self.victim]
        job.turn(0)
        self.steps = job.steps()
        self.living = [p for p in job.processes.values() if p.ended is None and p is not victim]
        self.killed = time.monotonic()
        return victim.ended is None and jobs.state_of(victim.pid) not in ("", "Z") and victim.signal(signal.SIGKILL)

    def watch_end(self):
        job, me = self.job, self.victim
        job.until(lambda: all(p.ended for p in job.processes.values()) and (job.launcher is False or len(job.processes) == job.world or job.head.ended), 15 * z.PATIENCE)
        ended = [p.ended for p in job.processes.values() if p.ended]
        self.expect(all(p.ended for p in job.processes.values()), "ranks that still run: " + str([p.rank for p in job.processes.values() if not p.ended]))
        self.delay = max([0.0] + [t - self.killed for t in ended])
        if not job.launcher and self.absent():
            # Without a launcher, the other ranks do not know a rank that died before it joined: they wait for
            # --rdzv-timeout.
            self.expect(max(ended) - job.start <= JOIN + LIMIT, f"others ended {max(ended) - job.start:.2f} s after the start")
            self.joined, self.delay = False, 0.0
        self.expect(self.delay <= LIMIT, f"others ended after {self.delay:.2f} s")
        if job.head:
            self.expect(job.until(lambda: job.head.ended is not None, 90 * z.PATIENCE), "the launcher does not end")
        end = time.monotonic() + 3 * z.PATIENCE
        while (left := job.left_behind()) and time.monotonic() < end:
            time.sleep(0.02)
        self.expect(not left, f"left behind: {left}")
        if job.head and job.head.ended is None or left:
            return
        if me is None:
            return
        device = self.plan.devices[me]
        self.name = f"rank {me} (device {device})"
        final = any(state == "complete" and folder.startswith(f"step-{STEPS:08d}.") for folder, state in jobs.snapshots(self.snapshots)[1])
        for other in self.living:
            text = job.errors_of(other.rank, self.plan.devices[other.rank])
            # A rank that has never connected to rank 0, the coordinator, knows only its address. It may have connected
            # just before the kill, and then names it.
            names = [self.name] + (["found no coordinator of job"] if me == 0 and not self.joined else [])
            named = any("error: " in line and any(name in line for name in names) for line in text.splitlines())
            # A rank that has finished may leave without an error. Under sanitizers, where a start takes a second, the
            # launcher ends ranks before they can join: these ranks print nothing, and the launcher reports the failure.
            unheard = z.PATIENCE > 4 and self.moment == "before joining" and not text and any("error: " in line and self.name in line for line in job.error().splitlines() if not line.startswith("["))
            self.expect(named or unheard or (final and "error" not in text), f"rank {other.rank} does not name {self.name}: {text.strip()[-400:]!r}")
        if self.how == "launcher":
            self.expect(job.head.code() == 137 and self.name in job.error().splitlines()[-1], f"exit code {job.head.code()}, said {job.error()[-300:]!r}")
        elif self.how == "restart":
            said = [line for line in job.error().splitlines() if line.startswith("restart 1 of 1")]
            resumed = [line for line in job.lines if line.startswith("resumed after step ")]
            self.resumed = int(resumed[-1].split()[3]) if resumed else 0
            self.expect(job.head.code() == 0 and len(said) == 1 and self.name in said[0], f"exit code {job.head.code()}, said {job.error()[-600:]!r}")
        else:
            for p in job.processes.values():
                self.expect(p.rank == me or p.code() not in (0, 130) or final, f"rank {p.rank} ended with {p.code()}")

    def absent(self):
        """Whether the victim had not joined yet (for rank 0: whether its coordinator did not listen yet)."""
        return any(re.search(r"did not join|found no coordinator", self.job.error(p.rank)) for p in self.living)

    def check_snapshots(self):
        _, self.found, text = jobs.snapshots(self.snapshots)
        self.expect(not any(state.startswith("damaged") for _, state in self.found), "a damaged snapshot: " + text)

    def resume(self):
        newest = max([int(re.match(r"step-(\d+)", folder).group(1)) for folder, state in self.found if state == "complete"], default=0)
        way = self.randoms.choice((["--in-process"], ["--spawn"], ["--spawn"]))
        words = self.words("--resume")
        if self.plan.others and self.randoms.random() < 0.75:
            words[0] = self.randoms.choice(self.plan.others)
        code, out, err = z.call("zorse-run", *words, *way, ok=False, timeout=120 * z.PATIENCE)
        said = re.search(r"resumed after step (\d+) ", out)
        self.resumed = int(said.group(1)) if said else 0
        self.expect(code == 0, f"resuming ended with {code}: {err[-500:]}")
        self.expect(self.resumed == newest, f"resumed after step {self.resumed}, the newest snapshot is of step {newest}: {err[-300:]}")

    def compare(self):
        metrics = jobs.metrics(self.metrics)
        after = [m for m in self.plan.metrics if m["step"] > self.resumed]
        self.expect(metrics[len(metrics) - len(after):] == after, f"metrics after step {self.resumed} differ: {first_difference(metrics[len(metrics) - len(after):], after)}")
        self.expect(all(m in self.plan.metrics for m in metrics), f"metrics that the uninterrupted run does not have: {[m for m in metrics if m not in self.plan.metrics][:1]}")
        self.whole = metrics == self.plan.metrics
        self.expect(jobs.content(self.checkpoint) == self.plan.checkpoint, "final parameters differ")
        listing = jobs.snapshots(self.snapshots)
        # If no steps remained, the resumed run does not clean up either.
        self.expect(listing[1] and (self.resumed == STEPS or all(state == "complete" for _, state in listing[1])), "after resuming: " + listing[2])


def main():
    count = int(next((w for w in sys.argv[1:2] if w.isdigit()), 200))
    first, workers = option("--seed", random.randrange(10**6)), option("--workers", 3)
    print(f"seed {first}", flush=True)
    results, landed, lock, begin = [], {}, threading.Lock(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="zorse-kills-") as folder:
        bundles = many_plans.tiers(folder, max(3, min(12, count // 8))) if TIERS else many_plans.bundles(folder, max(4, min(24, count // 4)))
        plans = [Plan(folder, *plan) for plan in bundles]
        plans = [plan for plan in plans if len(plan.devices) > 1]
        print(f"{len(plans)} plans of {min(len(p.devices) for p in plans)} to {max(len(p.devices) for p in plans)} devices, after {time.monotonic() - begin:.0f} s", flush=True)
        numbers = iter(range(10**9))

        def work():
            missed = 0
            while True:
                with lock:
                    number = next(numbers)
                    if len(results) >= count or missed > 50:
                        return
                randoms = random.Random(first * 1000003 + number)
                moment, how, plan = NAMES[number % len(NAMES)], randoms.choice(HOW), randoms.choice(plans)
                place = os.path.join(folder, f"case-{number}")
                os.mkdir(place)
                case = Case(place, plan, how, moment, randoms.randrange(10**9))
                try:
                    happened = case.run()
                except Exception as problem:  # counts as a failure of the case
                    case.problems.append(repr(problem))
                    happened = True
                if happened and not case.problems:
                    missed = 0
                with lock:
                    if not happened and not case.problems:
                        missed += 1
                    elif len(results) < count:
                        results.append(case)
                        landed[moment] = landed.get(moment, 0) + 1
                        if case.problems:
                            print(f"FAIL {number}: {plan.name}, {how}, {moment}, {getattr(case, 'name', None)}: " + "; ".join(case.problems), flush=True)
                            if "--keep" in sys.argv:
                                shutil.copytree(place, f"/tmp/zorse-kills-failed-{number}", dirs_exist_ok=True)
                        elif len(results) % 20 == 0:
                            print(f"ok   {len(results)} kills, {time.monotonic() - begin:.0f} s", flush=True)
                shutil.rmtree(place, ignore_errors=True)

        threads = [threading.Thread(target=work) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print("moments: " + ", ".join(f"{name} {landed.get(name, 0)}" for name in dict.fromkeys(NAMES)))
    print("jobs: " + ", ".join(f"{how} {sum(case.how == how for case in results)}" for how in dict.fromkeys(HOW)))
    delays = [case.delay for case in results if case.joined]
    good = sum(not case.problems for case in results)
    print(f"had not joined yet, without a launcher: {sum(not case.joined for case in results)}; metrics of every step there: {sum(getattr(case, 'whole', False) for case in results)}")
    where = " under plans with state on hosts, most resumed under other memories" if TIERS else ""
    print(f"{good} of {len(results)} kills{where}: others ended within {max(delays):.2f} s (median {statistics.median(delays):.2f}), resumed bit-equal; {time.monotonic() - begin:.0f} s")
    sys.exit(0 if good == len(results) == count else 1)


if __name__ == "__main__":
    main()
