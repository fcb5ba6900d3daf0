"""A rank that another process slows down during training is named within two measurements, and again when it is as fast
as before.

    slow_devices.py

Two CPU devices train. SIGSTOP and SIGCONT of one rank, in turn, take three quarters of its time.
"""
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

import harness as z
import jobs

DEVICES = ("a", "b")


def slow_down(pid, until):
    """Lets a process run a quarter of the time."""
    while not until.is_set():
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.03)
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.01)


def main():
    with tempfile.TemporaryDirectory() as folder:
        bundle, data, out = (os.path.join(folder, name) for name in ("gpt.zorse", "data.txt", "out.txt"))
        # The batch is divided equally, and threads are few: the devices do not disturb each other.
        z.compile(os.path.join(z.ROOT, "models/small/gpt-bytes.onnx"), bundle, z.cluster(folder, DEVICES), 12, 64)
        with open(data, "wb") as f:
            f.write(bytes(random.Random(5).choices(range(97, 123), k=200_000)))
        with open(out, "w") as written:
            job = subprocess.Popen([os.path.join(z.BIN, "zorse-run"), bundle, "--data", data, "--max-steps", "1000000", "--spawn"], stdin=subprocess.DEVNULL,
                                   stdout=written, stderr=subprocess.STDOUT)
        try:
            def until(found, seconds=60):
                end = time.monotonic() + seconds * z.PATIENCE
                while not (value := found()):
                    if time.monotonic() > end or job.poll() is not None:
                        raise z.Failure(f"it does not come: {said()[-600:]}")
                    time.sleep(0.005)
                return value

            def said():
                with open(out) as f:
                    return f.read()

            step = lambda: int(next(iter(re.findall(r"^step (\d+)/", said()[-4000:], re.MULTILINE)[-1:]), 0))
            named = lambda: re.search(r"warning: device b .*is slow: since step (\d+) it computes ([\d.]+) times its time at the start", said())
            until(lambda: step() >= 40)
            time.sleep(3)  # at least five measurements
            with open(f"/proc/{job.pid}/task/{job.pid}/children") as f:
                ranks = {jobs.environment_of(int(pid)).get("ZORSE_RANK"): int(pid) for pid in f.read().split()}
            begin, moment, ends = step(), time.monotonic(), threading.Event()
            before = said()
            thread = threading.Thread(target=slow_down, args=(ranks["1"], ends))
            thread.start()
            until(lambda: named() and "is slow" not in before)
            seconds, line = time.monotonic() - moment, named().group(0)
            since = int(named().group(1))
            ends.set()
            thread.join()
            until(lambda: re.search(r"device b .*computes as fast as before again", said()))
            results = [z.check("seconds until the slow device is named", seconds, 3 * z.PATIENCE), z.check("steps between its slowing down and the step that is named", abs(since - begin), 60),
                       z.check("other devices that are named", len(re.findall(r"device a .*is slow", said())), 0)]
            print(line)
        finally:
            job.kill()
            job.wait()
    return z.finish(results)


if __name__ == "__main__":
    sys.exit(main())
