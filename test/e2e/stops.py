"""Suspends random ranks (SIGSTOP) at random times: a suspended rank is lost after the deadline, and a slow rank is not.

    stops.py [COUNT] [--seed N] [--workers N]     default 20 of each kind

    lost         The others end within the deadline plus two seconds, and name the rank. If it had not
                 joined yet, it is reported when the time to join is over. The job is started again and resumes. Then
                 the suspended rank is continued: it ends with an error, without a signal, unless the job had finished before it
                 was started again. The files of the new job's snapshots are untouched, and its result is that of an
                 uninterrupted run.
    launcher     The same under Zorse's launcher, which also ends the suspended rank and restarts the job
                 (but not for a rank that had left it).
    paused       A rank is suspended for half the deadline: the run is not affected.
    throttled    A rank is suspended and continued repeatedly, so that it gets a small share of a CPU, at
                 the lowest priority.
"""
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time

import harness as z
import jobs
import kills
import many_plans

DEADLINE, MORE, JOIN = 2.0, 2.0 * z.PATIENCE, 8.0 * max(1, z.PATIENCE / 4)
KINDS = ("lost", "launcher", "paused", "throttled")


def stamp(directory):
    """The contents of every file below `directory`."""
    return {os.path.join(where, name): jobs.content(os.path.join(where, name)) for where, _, names in os.walk(directory) for name in names}


class Case(kills.Case):
    def run(self):
        os.mkdir(self.snapshots)
        more = ["--heartbeat-timeout", DEADLINE, "--rdzv-timeout", JOIN]
        launcher = self.how == "launcher" or (self.how != "lost" and self.randoms.random() < 0.5)
        if self.how == "launcher":
            more += ["--max-restarts", 1]
        self.job = job = jobs.Job(self.folder, self.words(*more), len(self.plan.devices), launcher, watch=self.snapshots)
        second = None
        try:
            if not kills.await_moment(job, self.moment, self.randoms):
                return False
            self.victim = self.randoms.randrange(job.world)
            if not job.until(lambda: self.victim in job.processes or job.over(), 5) or self.victim not in job.processes:
                return False
            victim = job.processes[self.victim]
            if victim.ended or jobs.state_of(victim.pid) in ("", "Z") or not victim.signal(signal.SIGSTOP):
                return False
            self.name = f"rank {self.victim} (device {self.plan.devices[self.victim]})"
            living = [p for p in job.processes.values() if p.ended is None and p is not victim]
            begin = time.monotonic()
            if self.how in ("paused", "throttled"):
                self.slow(job, victim)
                return self.undisturbed(job)
            job.until(lambda: all(p.ended for p in living), JOIN + DEADLINE + MORE + 10)
            self.expect(all(p.ended for p in living), "ranks that still run")
            # Zorse's launcher reports which ranks had not joined; on a busy machine, such a rank may not have printed
            # anything yet.
            if launcher:
                job.until(lambda: job.head.ended is not None or any(said in job.error() for said in ("restart 1 of 1", "has finished and left the job")), 60 * z.PATIENCE)
            # Read only now, because a rank's messages reach the launcher's output after the rank has ended.
            texts = {p.rank: job.errors_of(p.rank, self.plan.devices[p.rank]) for p in living}
            missing = [line.split(" did not join")[0] for line in job.error().splitlines() if " did not join" in line] if launcher else []
            self.joined = not missing and not any(re.search(r"did not join|found no coordinator", text) for text in texts.values())
            self.delay = max([0.0] + [p.ended - begin for p in living if p.ended]) if self.joined else 0.0
            self.expect(self.delay <= DEADLINE + MORE, f"others ended after {self.delay:.2f} s")
            self.final = any(state == "complete" and folder.startswith(f"step-{kills.STEPS:08d}.") for folder, state in jobs.snapshots(self.snapshots)[1])
            self.did = self.final and jobs.content(self.checkpoint) == self.plan.checkpoint and jobs.metrics(self.metrics) == self.plan.metrics
            for p in living:
                # A rank that has never connected to rank 0, the coordinator, knows only its address.
                names = [self.name] + ["found no coordinator of job"] * (self.victim == 0 and not launcher)
                named = any("error: " in line and any(name in line for name in names) for line in texts[p.rank].splitlines())
                absent = any(f"rank {p.rank} (device {self.plan.devices[p.rank]})" in line for line in missing)
                self.expect(named or absent or (self.final and "error" not in texts[p.rank]), f"rank {p.rank} does not name {self.name}: {texts[p.rank].strip()[-400:]!r}")
            if not launcher and living and all(p.ended and p.code() == 0 for p in living):
                self.expect(self.did, "the others ended with 0 before the outputs were written")
            if self.how == "launcher":
                self.expect(job.until(lambda: job.head.ended is not None, 60 * z.PATIENCE) and job.head.code() == 0, f"the launcher's exit code; {job.error()[-600:]!r}")
                left = f"warning: {self.name} has finished and left the job" in job.error()  # no reason for a restart
                self.expect(("restart 1 of 1" in job.error() or left and self.did) and not job.left_behind(), f"{job.left_behind()} {job.error()[-300:]!r}")
                said = [line for line in job.lines if line.startswith("resumed after step ")]
                self.resumed = int(said[-1].split()[3]) if said else 0
                self.compare()
                return True
            second = jobs.Job(self.folder, self.words("--resume"), len(self.plan.devices), False, job=job.job, secret=job.secret, store=job.store, attempt=1)
            if self.randoms.random() < 0.5:  # continues while the new job runs
                second.until(lambda: second.steps() > 0 or second.over(), 60 * z.PATIENCE)
                self.wake(job, victim)
                second.until(second.over, 60 * z.PATIENCE)
                self.wait(job, victim)
            else:
                second.until(second.over, 60 * z.PATIENCE)
                before = stamp(self.snapshots)
                self.wake(job, victim)
                self.wait(job, victim)
                self.expect(before == stamp(self.snapshots), "the snapshots' files have changed")
            self.expect(all(p.ended and p.code() == 0 for p in second.processes.values()), f"the second start: {second.error(0)[-500:]!r}")
            said = [line for line in second.lines if line.startswith("resumed after step ")]
            self.resumed = int(said[0].split()[3]) if said else 0
            self.compare()
            return True
        finally:
            job.close()
            if second:
                second.close()

    def wake(self, job, victim):
        victim.signal(signal.SIGCONT)
        self.woken = time.monotonic()

    def wait(self, job, victim):
        """The suspended rank ends without a signal, with an error."""
        ended = job.until(lambda: victim.ended is not None, JOIN + 10)
        text = job.error(self.victim)
        self.expect(ended, "the stopped rank does not end when it is continued")
        if ended:
            done = self.did and victim.code() == 0  # it only had to leave: the snapshot and the outputs were complete before the second start
            self.expect(done or victim.code() not in (0, 130) and "error: " in text, f"the stopped rank ended with {victim.code()}: {text[-300:]!r}")

    def slow(self, job, victim):
        if self.how == "paused":
            job.spend(DEADLINE / 2)
            victim.signal(signal.SIGCONT)
            return
        for thread in os.listdir(f"/proc/{victim.pid}/task") if os.path.exists(f"/proc/{victim.pid}/task") else []:
            try:
                os.setpriority(os.PRIO_PROCESS, int(thread), 19)
            except OSError:
                pass
        end = time.monotonic() + 2 * DEADLINE
        while time.monotonic() < end and victim.ended is None:
            victim.signal(signal.SIGCONT)
            job.spend(0.02)
            victim.signal(signal.SIGSTOP)
            job.spend(0.2)
        victim.signal(signal.SIGCONT)

    def undisturbed(self, job):
        job.until(job.over, 60 * z.PATIENCE)
        self.expect(job.over(), "the run does not end")
        codes = [p.code() for p in job.all() if p.popen] if job.over() else []
        self.expect(all(code == 0 for code in codes), f"exit codes {codes}; {' '.join(job.error(name)[-400:] for name in job.logs)!r}")
        self.compare()
        return True


def main():
    count = int(next((w for w in sys.argv[1:2] if w.isdigit()), 20))
    first, workers = kills.option("--seed", random.randrange(10**6)), kills.option("--workers", 4)
    print(f"seed {first}", flush=True)
    results, lock, begin = [], threading.Lock(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="zorse-stops-") as folder:
        plans = [kills.Plan(folder, *plan) for plan in many_plans.random(folder, max(2, min(8, count // 2)))]
        numbers = iter(range(10**9))
        moments = [name for name in kills.NAMES if name not in ("before joining",)]

        def work():
            while True:
                with lock:
                    number = next(numbers)
                    kind = next((k for k in KINDS[number % 4:] + KINDS if sum(r.how == k for r in results) < count), None)
                    if kind is None or number > 40 * count:
                        return
                randoms = random.Random(first * 1000003 + number)
                place = os.path.join(folder, f"case-{number}")
                os.mkdir(place)
                case = Case(place, randoms.choice(plans), kind, randoms.choice(moments), randoms.randrange(10**9))
                try:
                    happened = case.run()
                except Exception as problem:  # counts as a failure of the case
                    case.problems.append(repr(problem))
                    happened = True
                with lock:
                    if (happened or case.problems) and sum(r.how == kind for r in results) < count:
                        results.append(case)
                        if case.problems:
                            print(f"FAIL {number}: {case.plan.name}, {kind}, {case.moment}, {case.name}: " + "; ".join(case.problems), flush=True)
                shutil.rmtree(place, ignore_errors=True)

        threads = [threading.Thread(target=work) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    good = {kind: sum(r.how == kind and not r.problems for r in results) for kind in KINDS}
    lost = [r.delay for r in results if r.how in ("lost", "launcher") and r.joined] or [0.0]
    print(f"{good['lost'] + good['launcher']} of {2 * count} stopped ranks: others ended within {max(lost):.2f} s of a deadline of {DEADLINE:g} s, refused when continued; "
          f"{good['paused'] + good['throttled']} of {2 * count} slow ranks: nothing happened; {time.monotonic() - begin:.0f} s")
    sys.exit(0 if sum(good.values()) == 4 * count else 1)


if __name__ == "__main__":
    main()
