"""An elastic job moves work away from a device that another process slows down, and back when it is as fast as before.
No step is missing, and every segment has, bit by bit, the losses of its bundle in one process from the same state.

    elastic_slow.py

Two CPU devices train. Three other processes compute on the core of one rank.
"""
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import elastic
import harness as z
import jobs

elastic.DEVICES = ("a", "b")
elastic.STEPS = 100_000  # it is interrupted
SLOW = "b"


class Trial(elastic.Trial):
    def run(self):
        os.mkdir(self.checkpoints)
        self.memory, self.err, self.page = None, os.path.join(self.folder, "err.txt"), os.path.join(self.folder, "page.html")
        self.process = self.start([os.path.join(z.BIN, "zorse-run"), self.bundle, *map(str, self.words), "--max-steps", str(elastic.STEPS), "--spawn", "--elastic", "--checkpoint-dir",
                                   self.checkpoints, "--save-interval", "1000000", "--save-total-limit", "1000", "--metrics-file", self.metrics, "--html-report", self.page])
        try:
            self.until("30 steps", lambda: len(self.seconds()) > 30)  # at least five measurements
            self.began = len(self.seconds())
            with jobs.slowed(self.rank):
                self.until("a change of the plan", lambda: self.slowdowns() and len(self.seconds()) > self.change(0) + 40)
            self.slowed = len(self.seconds())
            self.until("the first plan", lambda: self.slowdowns()[-1] == {} and len(self.seconds()) > self.change(-1) + 40)
            self.process.send_signal(signal.SIGINT)
            self.process.wait(timeout=60 * z.PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()

    def rank(self):
        return next((pid for pid in jobs.children_of(self.process.pid) if jobs.environment_of(pid).get("ZORSE_RANK") == str(elastic.DEVICES.index(SLOW))), None)

    def until(self, what, found, seconds=60):
        end = time.monotonic() + seconds * z.PATIENCE
        while not found():
            if time.monotonic() > end or self.process.poll() is not None:
                with open(self.err) as f:
                    raise z.Failure(f"{what} does not come: {f.read()[-600:]}")
            time.sleep(0.02)

    def seconds(self):
        return self.rows()

    def change(self, number):
        return self.segments()[1:][number][2]

    def slowdowns(self):
        return [slowdowns for _, slowdowns, _ in self.segments()[1:]]

    def check_page(self):
        """The report of the last start shows all steps and changes."""
        with open(self.page) as f:
            page = f.read()
        shown = json.loads(re.search(r"const data=(.*);\n", page).group(1))
        if shown["changes"] != [begin for *_, begin in self.segments()[1:]] or shown["points"][0][0] != 1 or f"device {SLOW} takes" not in page:
            self.problems.append(f"the page shows the changes {shown['changes']} and steps from {shown['points'][0][0]}")

    def mean(self, begin, end):
        """Median seconds of steps, without the first ones."""
        return statistics.median(seconds for step, seconds in self.rows().items() if begin + 5 < step <= end)


def main():
    with tempfile.TemporaryDirectory() as folder:
        bundle, data = os.path.join(folder, "gpt.zorse"), os.path.join(folder, "data.txt")
        z.compile(os.path.join(z.ROOT, "models/small/gpt-bytes.onnx"), bundle, z.cluster(folder, elastic.DEVICES), 96, 64)
        elastic.write_data(data)
        trial = Trial(folder, bundle, data, 1)
        trial.run()
        normal, slow, moved = trial.mean(0, trial.began), trial.mean(trial.began, trial.change(0)), trial.mean(trial.change(0), trial.slowed)
        with open(trial.err) as f:
            print("".join(line for line in f if "is slow" in line or "going on" in line), end="")
        print(f"a step takes {normal * 1e3:.1f} ms, {slow * 1e3:.1f} with the slow device, {moved * 1e3:.1f} with its work moved; after it: {trial.mean(trial.change(-1), elastic.STEPS) * 1e3:.1f}")
        elastic.STEPS = max(trial.rows())
        trial.code = 0
        trial.check()
        trial.check_page()
        return z.finish([z.check("step with the work moved, of the step before", moved / slow, 0.8), z.check("changes of the plan", len(trial.slowdowns()), 4),
                         z.check("problems: " + "; ".join(trial.problems)[:400], len(trial.problems), 0)])


if __name__ == "__main__":
    sys.exit(main())
