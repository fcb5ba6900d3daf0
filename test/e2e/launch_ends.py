"""How jobs end under real launchers: a rank is killed, a run is asked to stop, a job is restarted.

    launch_ends.py [LAUNCHER ...]     processes, mpirun, torchrun, srun; default: the installed ones

- Every launcher: rank 1 is killed. The job ends within seconds with a nonzero exit code, an error names the rank, and
  no process is left.
- Every launcher: a run is asked to stop as docs/guides/clusters.md describes. Every rank stops after the same step, the
  checkpoint is complete, and no rank is cut off.
- processes and torchrun: the job is killed once and started again. Its metrics are those of an uninterrupted run.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import harness as z
from launchers import outcome, torchrun

LIMIT = 60 * z.PATIENCE
WORLD = 3


class Job:
    def __init__(self, launcher, folder, tag, words, options=()):
        self.secret, self.folder, self.log = os.urandom(16).hex(), folder, os.path.join(folder, tag + ".log")
        rank = [os.path.join(z.BIN, "zorse-run"), *map(str, words)]
        self.launcher = launcher
        root = ["--allow-run-as-root"] if os.getuid() == 0 else []
        command = {"processes": [*rank, "--spawn", *options],
                   "mpirun": ["mpirun", *root, "--oversubscribe", "--bind-to", "none", "-n", str(WORLD), *rank],
                   "torchrun": lambda: [torchrun(), "--standalone", "--no-python", f"--nproc-per-node={WORLD}", *options, *rank],
                   "srun": ["srun", "--overcommit", "--kill-on-bad-exit=1", "--nodes=2", f"--ntasks={WORLD}", *rank]}[launcher]
        self.command = command() if callable(command) else command
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env={**os.environ, "ZORSE_SECRET": self.secret})

    def text(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def processes(self):
        """Environments of this job's processes by process id: the processes that write into its folder."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ") as f:
                    environment = dict(e.split("=", 1) for e in f.read().split("\0") if "=" in e)
                with open(f"/proc/{pid}/cmdline") as f:
                    words = f.read().split("\0")
            except (OSError, UnicodeDecodeError):
                continue
            if any(w.startswith(self.folder) for w in words) and words[0].endswith("zorse-run"):
                found[int(pid)] = environment
        return found

    def kill_rank(self, rank):
        names = {"processes": "ZORSE_RANK", "mpirun": "PMIX_RANK", "torchrun": "RANK", "srun": "SLURM_PROCID"}
        for pid, environment in self.processes().items():
            if environment.get(names[self.launcher]) == str(rank):
                os.kill(pid, signal.SIGKILL)
                return
        raise z.Failure(f"no rank {rank} to kill:\n{self.text()}")

    def stop(self):
        if self.launcher == "srun":
            subprocess.run(["scancel", "--signal=TERM", "--user=" + str(os.getuid())], check=True)
        else:
            self.process.send_signal(signal.SIGUSR1 if self.launcher == "mpirun" else signal.SIGTERM)

    def wait_for(self, path, step):
        end = time.monotonic() + LIMIT
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with open(path) as f:
                    if sum(1 for _ in f) >= step:
                        return
            except OSError:
                pass
            time.sleep(0.02)
        raise z.Failure(f"did not reach step {step}:\n{self.text()[-3000:]}")

    def end(self):
        """(exit code, seconds until the exit, seconds until no process was left)"""
        begin = time.monotonic()
        try:
            code = self.process.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            self.close()
            raise z.Failure(f"did not end:\n{self.text()[-3000:]}")
        ended = time.monotonic() - begin
        while self.processes() and time.monotonic() - begin < LIMIT:
            time.sleep(0.02)
        return code, ended, time.monotonic() - begin

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def killed(launcher, folder, words):
    metrics = os.path.join(folder, "killed.jsonl")
    job = Job(launcher, folder, "killed", words(10 ** 8, metrics, os.path.join(folder, "killed.safetensors")))
    try:
        job.wait_for(metrics, 3)
        job.kill_rank(1)
        code, seconds, gone = job.end()
        text = job.text()
        good = code != 0 and gone < 10 * z.PATIENCE and "rank 1 (device b)" in text
        return good, f"rank 1 killed: exit code {code} after {seconds:.1f} s, no process left after {gone:.1f} s" + ("" if good else "\n" + text)
    finally:
        job.close()


def stopped(launcher, folder, words):
    metrics, checkpoint = os.path.join(folder, "stopped.jsonl"), os.path.join(folder, "stopped.safetensors")
    job = Job(launcher, folder, "stopped", words(10 ** 8, metrics, checkpoint))
    try:
        job.wait_for(metrics, 3)
        job.stop()
        code, seconds, _ = job.end()
        text = job.text()
        with open(metrics) as f:
            steps = [json.loads(line)["step"] for line in f]
        whole = os.path.exists(checkpoint) and len(z.safetensors(checkpoint)) > 0
        # Launchers use different exit codes for this; Zorse's is 130.
        good = whole and f"interrupted after step {steps[-1]} of" in text and not any("error: rank" in line for line in text.splitlines()) and \
            code == (130 if launcher in ("processes", "srun", "mpirun") else 1)
        return good, f"asked to stop: exit code {code} after {seconds:.1f} s, {len(steps)} steps" + ("" if good else "\n" + text)
    finally:
        job.close()


def restarted(launcher, folder, words):
    steps = 40
    threads = outcome(folder, "uninterrupted", lambda more: z.call("zorse-run", *words(steps, None, None), "--in-process", *more))
    metrics, checkpoint, snapshots = (os.path.join(folder, "restarted" + end) for end in (".jsonl", ".safetensors", ".snapshots"))
    delayed = {"processes": ["--max-restarts=1"], "torchrun": ["--max-restarts=1"]}[launcher]
    # Steps are slowed down, so that the killed step is not the last.
    os.environ["ZORSE_TEST_DELAYS"] = "1,20"
    job = Job(launcher, folder, "restarted", [*words(steps, metrics, checkpoint), "--checkpoint-dir", snapshots, "--save-interval", 5], delayed)
    del os.environ["ZORSE_TEST_DELAYS"]
    try:
        job.wait_for(metrics, 12)
        job.kill_rank(1)
        code, _, _ = job.end()
        ranks = outcome(folder, "restarted", lambda more: None)
        text = job.text()
        good = code == 0 and ranks == threads and (launcher != "processes" or "restart 1 of 1 from checkpoint" in text)
        return good, f"started again: exit code {code}, {'equal to the uninterrupted run' if ranks == threads else 'differs from the uninterrupted run'}" + ("" if good else "\n" + text)
    finally:
        job.close()


def main():
    launchers = sys.argv[1:]
    if not launchers:
        there = {"processes": True, "mpirun": shutil.which("mpirun"), "srun": shutil.which("srun") and shutil.which("munged", path=os.defpath + ":/usr/sbin")}
        launchers = [name for name in there if there[name]]
        for name in set(there) - set(launchers):
            print(f"skipped: jobs under {name}: not installed (tools/install.sh --launchers)", flush=True)
    if "srun" in launchers and "SLURM_CONF" not in os.environ:
        os.execv("/bin/bash", ["bash", os.path.join(z.ROOT, "test", "support", "slurm-on-loopback.sh"), sys.executable, sys.argv[0], *launchers])
    results = []
    with tempfile.TemporaryDirectory() as folder:
        bundle, data = os.path.join(folder, "b.zorse"), os.path.join(z.SMALL, "gpt.tokens.bin")
        cells = [(0, 3, 0, 4, "a"), (0, 3, 4, 8, "a"), (3, 8, 0, 3, "b"), (3, 8, 3, 8, "c")]
        z.compile(os.path.join(z.SMALL, "gpt.onnx"), bundle, z.cluster(folder, list("abc")), 8, 32, z.plan(folder, "p", 8, list("abc"), cells))

        def words(steps, metrics, checkpoint):
            return [bundle, "--data", data, "--max-steps", steps] + (["--metrics-file", metrics] if metrics else []) + (["--save-weights", checkpoint] if checkpoint else [])

        for launcher in launchers:
            tests = [killed, stopped] + ([restarted] if launcher in ("processes", "torchrun") else [])
            for test in tests:
                try:
                    own = tempfile.mkdtemp(dir=folder)
                    good, what = test(launcher, own, words)
                except z.Failure as failure:
                    good, what = False, str(failure)
                results.append(good)
                print(f"{'ok  ' if good else 'FAIL'} {launcher}: {what}", flush=True)
    z.finish(results)


if __name__ == "__main__":
    main()
