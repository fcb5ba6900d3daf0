"""zorse-cluster describes this machine, gathers descriptions of processes and of hosts, and measures the links between
them; invalid input is refused.
"""
import os
import stat
import subprocess
import sys
import tempfile

import harness as h


def expect(condition, what):
    if not condition:
        raise h.Failure(what)


def accepted(path, bundle):
    """The compiler accepts the cluster: --cluster with a model."""
    code, _, said = h.call("zorse-compile", os.path.join(h.SMALL, "gpt.onnx"), "--cluster", path, "--global-batch-size", 4, "--seq-length", 32, "--quiet", "-o", bundle, ok=False)
    return code == 0 or "no plan" in said, said


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "here.yaml")
        _, _, said = h.call("zorse-cluster", "-o", path, "--measure", "--nvml", "/nonexistent.so")
        expect("GFLOP/s measured" in said, said)
        good, said = accepted(path, os.path.join(folder, "here.zorse"))
        expect(good, said)

        # Two processes that act as two nodes of a job.
        port = h.Ports(1)
        secret = os.path.join(folder, "secret")
        with open(secret, "w") as f:
            f.write("0123456789abcdef0123456789abcdef\n")
        os.chmod(secret, 0o600)
        out = os.path.join(folder, "both.yaml")
        ranks = []
        for rank in range(2):
            environment = dict(os.environ, ZORSE_RANK=str(rank), ZORSE_WORLD_SIZE="2", ZORSE_LOCAL_RANK="0", ZORSE_STORE=f"127.0.0.1:{port}", ZORSE_SECRET_FILE=secret)
            ranks.append(subprocess.Popen([os.path.join(h.BIN, "zorse-cluster"), "--all-nodes", "--measure", "--node-name", f"n{rank}", "--name", "both", "-o", out, "--link-measure-seconds", "0.2",
                                           "--nvml", "/nonexistent.so"], env=environment, stderr=subprocess.PIPE, text=True))
        texts = [rank.communicate(timeout=120)[1] for rank in ranks]
        expect([rank.returncode for rank in ranks] == [0, 0], str(texts))
        expect("n0 to n1: " in texts[0], texts[0])
        with open(out) as f:
            text = f.read()
        expect("name: both" in text and "name: n0-cpu" in text and "name: n1-cpu" in text, text)
        good, said = accepted(out, os.path.join(folder, "both.zorse"))
        expect(good, said)

        # A list of hosts, with a local shell in place of ssh. Hosts are addresses of this machine.
        shell = os.path.join(folder, "shell")
        with open(shell, "w") as f:
            f.write("#!/bin/sh\nhost=$1; shift\n[ $host = broken ] && { echo no route to broken >&2; exit 255; }\nPATH=" + h.BIN + ":$PATH exec sh -c \"$1 --node-name node-$host\"\n")
        os.chmod(shell, os.stat(shell).st_mode | stat.S_IXUSR)
        code, text, said = h.call("zorse-cluster", "--hosts", "127.0.0.1,localhost", "--ssh-command", shell, "--measure", "--quiet", "--nvml", "/nonexistent.so", ok=False)
        expect(code == 0 and "node-127.0.0.1" in text and "node-localhost" in text, f"{code} {text} {said}")
        expect("0123456789abcdef" not in text, "the secret is in the output")

        for words, text in (
                (["--all-nodes"], "was not started by a launcher"),
                (["--hosts=-oProxyCommand=x"], "--hosts: expected names of hosts"),
                (["--hosts", "broken", "--ssh-command", shell], "no description from these hosts: broken (exit code 255)"),
                (["--hosts", "a", "--ssh-command", "/nonexistent/shell"], "no description from these hosts: a (exit code 127)"),
                (["--node-name", "a b"], "--node-name: expected a name without spaces"),
                (["-o", os.path.join(folder, "none", "c.yaml")], "cannot be written"),
                (["--link-measure-seconds", "-1"], "--link-measure-seconds")):
            environment = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "OMPI", "PMI", "ZORSE_RANK"))}
            done = subprocess.run([os.path.join(h.BIN, "zorse-cluster"), *words], capture_output=True, text=True, timeout=60, env=environment)
            expect(done.returncode == 1 and text in done.stderr, f"{words}: exit {done.returncode}, {done.stderr!r}")
    print("clusters: this machine, two processes, two hosts, links between them; mistakes are named")


if __name__ == "__main__":
    main()
