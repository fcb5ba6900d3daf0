"""A rank that another process slows down during training is named within two measurements, and again when it is as fast
as before.

    slow_devices.py

Two CPU devices train. Three other processes compute on the core of one rank.
"""
import os
import random
import re
import subprocess
import sys
import tempfile
import time

import harness as z
import jobs

DEVICES = ("a", "b")


def main():
    with tempfile.TemporaryDirectory() as folder:
        bundle, data, out = (os.path.join(folder, name) for name in ("gpt.zorse", "data.txt", "out.txt"))
        # The batch is divided equally, and threads are few: the devices do not disturb each other.
        z.compile(os.path.join(z.ROOT, "models/small/gpt-bytes.onnx"), bundle, z.cluster(folder, DEVICES), 96, 64)
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
            until(lambda: step() >= 30)  # at least five measurements
            ranks = {jobs.environment_of(pid).get("ZORSE_RANK"): pid for pid in jobs.children_of(job.pid)}
            begin, moment = step(), time.monotonic()
            before = said()
            with jobs.slowed(lambda: ranks["1"]):
                until(lambda: named() and "is slow" not in before)
                seconds, line, steps = time.monotonic() - moment, named().group(0), step() - begin
            since, times = int(named().group(1)), float(named().group(2))
            until(lambda: re.search(r"device b .*computes as fast as before again", said()))
            results = [z.check("steps until the slow device is named", steps, 20 * z.PATIENCE), z.check("steps between its slowing down and the step that is named", abs(since - begin), 10),
                       z.check("its computing time, named against expected, factor", max(times / 4, 4 / times), 1.6),
                       z.check("other devices that are named", len(re.findall(r"device a .*is slow", said())), 0)]
            print(line)
        finally:
            job.kill()
            job.wait()
    return z.finish(results)


if __name__ == "__main__":
    sys.exit(main())
