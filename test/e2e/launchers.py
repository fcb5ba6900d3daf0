"""Runs the same bundle as threads of one process and as ranks of a launcher: metrics and trained parameters are
bit-identical.

    launchers.py LAUNCHER [COUNT]     COUNT plans (default 20): the seven of
                                      plan_invariance.py, then random tilings of a tiny GPT with dropout

LAUNCHER:
    processes  zorse-run --spawn
    torchrun   PyTorch's, found next to ZORSE_PYTHON, in PATH or in .venv; every fourth plan over two agents
               ("nodes") if the ranks can be halved
    mpirun     Open MPI's; every fourth plan over two host names that both mean this machine, if mount
               namespaces are allowed (root)
    srun       Slurm's, on the cluster of test/support/slurm-on-loopback.sh: over two nodes, every fourth
               plan on one, every fourth through PMI-2

If the launcher is not installed, exits with 77 and prints the reason.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

import harness as z
from plan_invariance import BATCH, LENGTH, plans
from random_tilings import LENGTH as TINY_LENGTH, MODEL as TINY, TRAININGS, make_data

LIMIT = 120 * max(1, z.PATIENCE / 2)  # seconds of one run
TIMES = {"seconds", "tokens_per_second", "memory_bytes"}  # what may differ


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


def torchrun():
    for folder in filter(None, [os.path.dirname(os.environ.get("ZORSE_PYTHON", "")), os.path.dirname(shutil.which("torchrun") or ""),
                                os.path.join(z.ROOT, ".venv", "bin")]):
        if os.access(os.path.join(folder, "torchrun"), os.X_OK):
            return os.path.join(folder, "torchrun")
    skip("torchrun is not installed (a Python with PyTorch: tools/python-env.sh, or name one in ZORSE_PYTHON)")


def with_hosts(folder):
    """Words before a command that make zn1 and zn2 names of this machine; None if mount namespaces are not allowed."""
    words = ["unshare", "--mount", "bash", "-c", 'mount --make-rprivate / && mount --bind "$0" /etc/hosts && exec "$@"', os.path.join(folder, "hosts")]
    with open("/etc/hosts") as old, open(words[-1], "w") as new:
        new.write(old.read() + "\n127.0.0.1 zn1\n127.0.0.2 zn2\n")
    return words if subprocess.run(words + ["true"], capture_output=True).returncode == 0 else None


class Launcher:
    """Creates the command lines that run `words` as `world` ranks: several if several agents must be started in
    parallel."""

    def __init__(self, name, folder):
        self.name, self.folder = name, folder
        self.environment = {k: v for k, v in os.environ.items() if k not in ("ZORSE_STORE", "ZORSE_JOB")}
        self.environment["ZORSE_SECRET"] = os.urandom(16).hex()
        if name == "torchrun":
            self.program = torchrun()
            self.environment["OMP_NUM_THREADS"] = "1"
        elif name == "mpirun":
            if not shutil.which("mpirun"):
                skip("mpirun is not installed (tools/install.sh --launchers)")
            if "Open MPI" not in subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout:
                skip("mpirun is not Open MPI's")
            self.hosts = with_hosts(folder)
            self.shell = os.path.join(folder, "shell.sh")  # in place of ssh: every host is this machine
            with open(self.shell, "w") as f:
                f.write('#!/bin/sh\nshift\nexec /bin/sh -c "$*"\n')
            os.chmod(self.shell, 0o755)
        elif name == "srun" and "ZORSE_STORE" in os.environ:  # the cluster's names do not resolve here
            self.environment["ZORSE_STORE"] = os.environ["ZORSE_STORE"]

    def commands(self, number, world, words):
        fourth = number % 4 == 3
        if self.name == "processes":
            return [words + ["--spawn"]], "zorse-run"
        if self.name == "torchrun":
            options = [self.program, "--no-python", "--rdzv-id", f"plan-{number}"]
            if fourth and world % 2 == 0:
                self.port = port = z.Ports()
                return [options + ["--nnodes=2", f"--node-rank={node}", "--master-addr=127.0.0.1", f"--master-port={port}", f"--nproc-per-node={world // 2}"] + words
                        for node in (0, 1)], "torchrun"
            return [[self.program, "--standalone", "--no-python", f"--nproc-per-node={world}"] + words], "torchrun"
        if self.name == "mpirun":
            options = ["mpirun", "--oversubscribe", "--bind-to", "none", "-x", "ZORSE_SECRET", "-n", str(world)]
            if os.getuid() == 0:
                options.insert(1, "--allow-run-as-root")
            if fourth and self.hosts and world > 1:
                return [self.hosts + options + ["--mca", "plm_rsh_agent", self.shell, "--host", f"zn1:{world // 2},zn2:{world}"] + words], "Open MPI (PMIx)"
            return [options + words], "Open MPI (PMIx)"
        options = ["srun", "--overcommit", "--kill-on-bad-exit=1", f"--ntasks={world}", f"--nodes={1 if fourth or world == 1 else 2}"]
        if number % 4 == 1:
            return [options + ["--mpi=pmi2"] + words], "Slurm (PMI)"
        return [options + words], "Slurm"

    def run(self, number, world, words):
        commands, source = self.commands(number, world, [os.path.join(z.BIN, words[0])] + [str(w) for w in words[1:]])
        logs = [tempfile.TemporaryFile(mode="w+") for _ in commands]
        running = [subprocess.Popen(c, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=self.environment) for c, log in zip(commands, logs)]
        codes = []
        try:
            codes = [process.wait(timeout=LIMIT) for process in running]
        except subprocess.TimeoutExpired:
            codes = ["did not end"]
        finally:
            for process in running:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        for log in logs:
            log.seek(0)
        text = "".join(log.read() for log in logs)
        if any(codes):
            raise z.Failure(f"{' '.join(commands[0])}\nexit codes {codes}\n{text[-4000:]}")
        if not re.search(rf"^.*{world} ranks on .* started by {re.escape(source)}", text, re.MULTILINE) and world > 1:
            raise z.Failure(f"{' '.join(commands[0])}\ndoes not say that {source} started {world} ranks:\n{text[-4000:]}")


def outcome(folder, tag, call):
    """Runs `call` with additional words. Returns the metrics without times, and the bytes of the checkpoint."""
    metrics, checkpoint = os.path.join(folder, tag + ".jsonl"), os.path.join(folder, tag + ".safetensors")
    call(["--metrics-file", metrics, "--save-weights", checkpoint])
    with open(metrics) as f:
        lines = [re.sub(rf'"({"|".join(TIMES)})":[^,}}]*,?', "", line) for line in f]
    with open(checkpoint, "rb") as f:
        return lines, f.read()


def bundles(folder, count):
    """(name, bundle, number of devices, arguments of zorse-run)"""
    path, data = os.path.join(z.SMALL, "gpt.onnx"), os.path.join(z.SMALL, "gpt.tokens.bin")
    for name, (devices, cells, more) in list(plans().items())[:count]:
        bundle = os.path.join(folder, name + ".zorse")
        z.compile(path, bundle, z.cluster(folder, devices), BATCH, LENGTH, z.plan(folder, name, BATCH, devices, cells, **more))
        yield name, bundle, len(devices), ["--data", data, "--max-steps", 6]
    for seed in range(max(0, count - len(plans()))):
        devices, batch, training = 2 + seed * 3 % 5, (5, 8, 11)[seed % 3], TRAININGS[seed % 4]
        one, plan_file, bundle = (os.path.join(folder, n) for n in (f"one-{batch}.zorse", "random.plan.json", f"random-{seed}.zorse"))
        if not os.path.exists(one):
            z.compile(TINY, one, z.cluster(folder, ["d0"]), batch, TINY_LENGTH)
        z.call("random-plan", os.path.join(one, "summary.pb"), devices, batch, seed, plan_file)
        z.compile(TINY, bundle, z.cluster(folder, [f"d{i}" for i in range(devices)]), batch, TINY_LENGTH, plan_file, training)
        yield f"random-{seed}", bundle, devices, ["--data", make_data(folder, batch), "--max-steps", 6, "--seed", 5]


def main():
    name, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20
    if name == "srun" and "SLURM_CONF" not in os.environ:
        os.execv("/bin/bash", ["bash", os.path.join(z.ROOT, "test", "support", "slurm-on-loopback.sh"), sys.executable, *sys.argv])
    equal = 0
    with tempfile.TemporaryDirectory() as folder:
        launcher = Launcher(name, folder)
        for number, (plan, bundle, world, words) in enumerate(bundles(folder, count)):
            try:
                threads = outcome(folder, "threads", lambda more: z.call("zorse-run", bundle, "--in-process", *words, *more))
                ranks = outcome(folder, "ranks", lambda more: launcher.run(number, world, ["zorse-run", bundle, *words, *more]))
                good = threads == ranks and len(threads[0]) > 0
                what = "equal" if good else "metrics differ" if threads[0] != ranks[0] else "parameters differ"
                if number == 0 and name != "processes":  # one process is no rank: all devices are its threads
                    good = good and outcome(folder, "one", lambda more: launcher.run(number, 1, ["zorse-run", bundle, *words, *more])) == threads
            except z.Failure as failure:
                good, what = False, str(failure)
            equal += good
            print(f"{'ok  ' if good else 'FAIL'} {name}, {plan}, {world} devices: {what}", flush=True)
    print(f"{equal} of {count} plans bit-equal to threads of one process")
    sys.exit(0 if equal == count else 1)


if __name__ == "__main__":
    main()
