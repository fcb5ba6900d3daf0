"""Loss of a GPU during direct transfers: every rank ends within the deadline, whatever operations are on streams.

    direct_faults.py [COUNT] [--seed N]     default 50 random times; the short form has 4

At a random time of a job of four processes, a rank is killed or suspended, hangs in an NCCL operation, or gets an error
from NCCL. The other ranks end without a signal: within 2 s after a death; after silence or a hang within the deadline plus
the time that the coordinator needs to confirm it. All of them report the cause, and no process is left.
"""
import os
import random
import signal
import sys
import tempfile
import time

import cuda
import direct
import harness as z
import jobs

DEADLINE, STALL = 3.0, 4.0
# Kind of fault, time from the fault to the end of the last rank, and message of the job.
WAYS = ("kill", "stop", "hang", "fail")
LIMITS = {"kill": 2.0, "stop": DEADLINE + 3.0, "hang": STALL + 4.0, "fail": 2.0}


def one(folder, bundle, data, way, draw):
    rank, operation = draw.randrange(4), draw.randrange(10, 120)
    os.makedirs(folder, exist_ok=True)
    environment = {k: os.environ[k] for k in ("ZORSE_EMULATOR_DEVICES",)}
    if way in ("hang", "fail"):
        environment["ZORSE_NCCL_FAULT"] = f"{way}@{operation}:{rank}"
    words = [bundle, "--data", data, "--max-steps", 100000, "--heartbeat-timeout", DEADLINE, "--watchdog-timeout", STALL, "--rdzv-timeout", 60]
    job = jobs.Job(folder, words, 4, environment=environment)
    try:
        job.until(lambda: job.steps() >= 1 or job.over(), 120 * z.PATIENCE)
        if way in ("kill", "stop"):
            job.spend(draw.random() * 1.0)
            begin = time.monotonic()
            job.processes[rank].signal(signal.SIGKILL if way == "kill" else signal.SIGSTOP)
        else:
            begin = None
        last = [job.steps(), time.monotonic()]

        def watched():  # if an operation hangs or fails, the start of the measurement is the last step
            if job.steps() != last[0]:
                last[:] = [job.steps(), time.monotonic()]
            return all(p.ended is not None for r, p in job.processes.items() if not (way == "stop" and r == rank))

        job.until(lambda: watched() or job.over(), 120 * z.PATIENCE)
        took = time.monotonic() - (begin if begin is not None else last[1])
        if way == "stop":
            job.processes[rank].signal(signal.SIGCONT)
        job.until(lambda: job.over(), 60 * z.PATIENCE)
        said = " ".join(job.lines[-12:]) if job.lines else ""
        return took, rank, operation, said, job.over()
    finally:
        job.close()


def main():
    numbers = [int(w) for w in sys.argv[1:] if w.isdigit()]
    count = numbers[0] if numbers else 50
    os.environ["LD_LIBRARY_PATH"] = cuda.STANDIN + ":" + os.environ.get("LD_LIBRARY_PATH", "")
    os.environ["ZORSE_EMULATOR_DEVICES"] = "8"
    results, longest = [], {way: 0.0 for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        bundle, data, _ = direct.compile_plan(folder, 0)
        for n in range(count):
            way, draw = WAYS[n % len(WAYS)], random.Random(1000 + n)
            took, rank, operation, said, over = one(os.path.join(folder, str(n)), bundle, data, way, draw)
            good = over and took <= LIMITS[way] * z.PATIENCE
            longest[way] = max(longest[way], took)
            print(f"{'ok  ' if good else 'FAIL'} {n}: {way} of rank {rank}" + (f" in operation {operation}" if way in ('hang', 'fail') else "") + f": all ended after {took:.2f} s" + ("" if good else f": {said}"), flush=True)
            results.append(good)
    z.finish(results, "faults at random moments end every rank in time: after " + ", ".join(f"{way} at most {longest[way]:.2f} s (limit {LIMITS[way] * z.PATIENCE:g} s)" for way in WAYS[:count]))


if __name__ == "__main__":
    main()
