"""An elastic job on three nodes that loses whole nodes, with their memory, or their network, at random moments. There are no checkpoints in
storage: with --replicate-memory-checkpoints, the state survives on the other nodes. The job comes to its end, no step is
missing, and every segment between two changes has, bit by bit, the losses of its bundle in one process from the same
state.

    elastic_nodes.py [LOSSES] [--seed N]     default 20 losses

Needs root: the nodes are network, host name and mount namespaces, with an own memory file system each.
"""
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import elastic
import harness as z

NODES = ("first", "second", "third")
elastic.DEVICES = ("a", "b", "c")
ADDRESS = "10.97.114."


class Namespaces:
    """Three nodes and a switch in separate namespaces."""

    def __init__(self, folder):
        self.folder, self.holders = folder, {}
        for name in ("switch", *NODES):
            self.holders[name] = subprocess.Popen(["unshare", "--net", "--uts", "--mount", "bash", "-c", "mount --make-rprivate / && mount -t tmpfs -o size=1g tmpfs /dev/shm && hostname $0 && "
                                                   "ip link set lo up && echo ready && exec sleep infinity", name], stdout=subprocess.PIPE, text=True)
            if self.holders[name].stdout.readline() != "ready\n":
                raise z.Failure("a namespace could not be made")
        self.inside("switch", "ip", "link", "add", "zbr", "type", "bridge")
        self.inside("switch", "ip", "addr", "add", ADDRESS + "254/24", "dev", "zbr")
        self.inside("switch", "ip", "link", "set", "zbr", "up")
        for number, name in enumerate(NODES):
            self.inside("switch", "ip", "link", "add", f"to{number}", "type", "veth", "peer", "name", "eth0", "netns", str(self.holders[name].pid))
            self.inside("switch", "ip", "link", "set", f"to{number}", "master", "zbr", "up")
            self.inside(name, "ip", "addr", "add", f"{ADDRESS}{number + 1}/24", "dev", "eth0")
            self.inside(name, "ip", "link", "set", "eth0", "up")
        self.start = os.path.join(folder, "start.sh")
        with open(self.start, "w") as f:
            f.write("#!/bin/sh\ncase $1 in\n" + "".join(f"{name}) node={self.holders[name].pid};;\n" for name in NODES) + 'esac\nexec nsenter -t $node -n -u -m sh -c "$2"\n')
        os.chmod(self.start, 0o755)

    def words(self, name):
        return ["nsenter", "-t", str(self.holders[name].pid), "-n", "-u", "-m", "--"]

    def inside(self, name, *words):
        subprocess.run([*self.words(name), *words], check=True, capture_output=True)

    def processes(self, name):
        own = os.readlink(f"/proc/{self.holders[name].pid}/ns/mnt")
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{pid}/ns/mnt") == own and int(pid) != self.holders[name].pid:
                    yield int(pid)
            except OSError:
                pass

    def lose(self, name):
        """Ends what runs on a node and deletes its memory. The node itself can be used again."""
        ended = 0
        for pid in self.processes(name):
            try:
                os.kill(pid, signal.SIGKILL)
                ended += 1
            except ProcessLookupError:
                pass
        self.inside(name, "sh", "-c", "rm -rf /dev/shm/*")
        return ended

    def cut(self, name, seconds):
        """Takes the network of a node away for some time."""
        port = f"to{NODES.index(name)}"
        self.inside("switch", "ip", "link", "set", port, "down")
        time.sleep(seconds)
        self.inside("switch", "ip", "link", "set", port, "up")

    def close(self):
        for name, holder in self.holders.items():
            for pid in self.processes(name):
                os.kill(pid, signal.SIGKILL)
            holder.kill()
            holder.wait()


class Trial(elastic.Trial):
    def __init__(self, nodes, *words):
        super().__init__(*words)
        self.nodes, self.memory = nodes, None

    def run(self):
        os.mkdir(self.checkpoints)
        self.err = os.path.join(self.folder, "err.txt")
        words = [os.path.join(z.BIN, "zorse-run"), self.bundle, *map(str, self.words), "--max-steps", str(elastic.STEPS), "--spawn", "--elastic", "--checkpoint-dir", self.checkpoints,
                 "--save-interval", "1000000", "--metrics-file", self.metrics, "--heartbeat-timeout", str(elastic.DEADLINE), "--heartbeat-interval", "0.1", "--rejoin-seconds", "1",
                 "--memory-checkpoint-interval", "1", "--replicate-memory-checkpoints", "--start-command", f"{self.nodes.start} {{node}}", "--local-addr", ADDRESS + "0/24"]
        with open(self.err, "wb") as err:
            process = subprocess.Popen([*self.nodes.words("switch"), *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err)
        try:
            for _ in range(self.randoms.randrange(1, 4)):
                time.sleep(0.8 + 2 * self.randoms.random())
                if process.poll() is not None or not self.rows():
                    break
                name = self.randoms.choice(NODES)
                if self.randoms.random() < 0.3:
                    self.nodes.cut(name, 1.5 + 2 * self.randoms.random())
                    self.changes.append(f"{name} cut off")
                elif self.nodes.lose(name):
                    self.changes.append(f"{name} lost")
            self.code = process.wait(timeout=180 * z.PATIENCE)
        except subprocess.TimeoutExpired:
            self.code = None
        finally:
            process.kill()
            process.wait()

    def rows(self):
        return os.path.exists(self.metrics) and os.path.getsize(self.metrics) > 0

    def check(self):
        super().check()
        if self.code == 0 and any(begin == 0 for *_, begin in self.segments()[1:]):
            self.problems.append(f"started from the beginning: {self.segments()}")
        left = [name for name in NODES if subprocess.run([*self.nodes.words(name), "ls", "/dev/shm"], capture_output=True, text=True).stdout.strip()]
        if self.code == 0 and left:
            self.problems.append(f"left in the memory of {', '.join(left)}")


def make_bundle(folder):
    cluster = os.path.join(folder, "three-nodes.yaml")
    with open(cluster, "w") as f:
        f.write("name: three nodes\nnodes:\n" + "".join(f"  - name: {node}\n    devices:\n      - {{name: {device}, kind: cpu, flops_per_second: 1e10, memory: 2GiB}}\n"
                                                        for node, device in zip(NODES, elastic.DEVICES)))
    bundle, data = os.path.join(folder, "gpt.zorse"), os.path.join(folder, "data.txt")
    z.call("zorse-compile", os.path.join(z.ROOT, "models/small/gpt-bytes.onnx"), "--cluster", cluster, "--compile-all-functions", "--global-batch-size", 12, "--seq-length", 64, "--lr", 1e-3,
           "-o", bundle)
    randoms = random.Random(5)
    with open(data, "wb") as f:
        f.write(bytes(randoms.choices(range(97, 123), k=200_000)))
    return bundle, data


def main():
    wanted = int(next((word for word in sys.argv[1:] if word.isdigit()), 20))
    seed = int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else 1
    if os.getuid() != 0 or subprocess.run(["unshare", "--net", "--uts", "--mount", "true"], capture_output=True).returncode != 0:
        print("skipped: needs root, to make network and mount namespaces")
        return 77
    bad = made = segments = 0
    with tempfile.TemporaryDirectory() as folder:
        bundle, data = make_bundle(folder)
        while made < wanted:
            own = os.path.join(folder, str(seed))
            os.mkdir(own)
            nodes = Namespaces(own)
            try:
                trial = Trial(nodes, own, bundle, data, seed)
                trial.run()
                trial.check()
            finally:
                nodes.close()
            made += max(len(trial.changes), 1)
            segments += len(trial.segments())
            bad += bool(trial.problems)
            print(f"{'FAIL' if trial.problems else 'ok  '} seed {seed}: {', '.join(trial.changes) or 'no change'}" + "".join("\n     " + problem for problem in trial.problems), flush=True)
            if not trial.problems:
                shutil.rmtree(own)
            seed += 1
        z.finish([z.check(f"jobs that are wrong, of {made} losses and {segments} segments", bad, 0)])


if __name__ == "__main__":
    sys.exit(main())
