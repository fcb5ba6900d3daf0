"""Cuts the network between the nodes of a job, in one or both directions, at random times. An outage of at most two
thirds of the deadline is survived. A longer one ends the job on all nodes in time, with exit code 2 and a message
that names the unreachable rank; or the job starts again from its newest snapshot and completes.

    network_cuts.py [--trials 100] [--deadlines 3,10,30,60] [--seed 1] [--at-once 4] [--kind short|long|large]

Three nodes with one rank each are network namespaces on one bridge; the coordinator is in the launcher of the first. A
direction is cut by giving the sender a wrong hardware address of the receiver: packets are sent and not received, as
behind a broken switch. In trials of the kind "large" only packets above 600 bytes are lost, to a node and from it, as
behind a tunnel whose size limit is not reported to senders. Trials use the deadlines in rotation. Needs the right to
make network namespaces (exit code 77 without it).
"""
import argparse
import concurrent.futures
import os
import queue
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

import harness as z

DEADLINES = [3.0, 10.0, 30.0, 60.0]
# Maximum time from the deadline to the end of a job (docs/reference/faults.md), including the end of its processes.
LATE = 3.0
NODES = 3
DEVICES = "abc"
NOBODY = "02:00:00:00:00:fe"


def ip(*words):
    return subprocess.run(["ip", *map(str, words)], capture_output=True, text=True)


class Network:
    """Nodes 0, 1, ... on a bridge."""

    def __init__(self, number):
        self.hub = f"zc{os.getpid()}-{number}-hub"
        self.spaces = [f"zc{os.getpid()}-{number}-{n}" for n in range(NODES)]
        self.addresses = [f"10.214.7.{n + 1}" for n in range(NODES)]
        self.hardware = [f"02:00:00:00:07:{n + 1:02x}" for n in range(NODES)]

    def build(self):
        """None, or the reason why it is not possible."""
        todo = [("netns", "add", space) for space in [self.hub] + self.spaces] + [("-n", self.hub, "link", "add", "name", "zrs-bridge", "type", "bridge"), ("-n", self.hub, "link", "set", "zrs-bridge", "up")]
        for n, space in enumerate(self.spaces):
            # A separate bridge that can lose packets without notice to the sender's host: zrs - edge = bridge = up -
            # port = the common bridge.
            todo += [("link", "add", "zrs", "netns", space, "type", "veth", "peer", "name", f"edge{n}", "netns", self.hub),
                     ("-n", self.hub, "link", "add", "name", f"zrs-own{n}", "type", "bridge"), ("-n", self.hub, "link", "set", f"zrs-own{n}", "up"),
                     ("-n", self.hub, "link", "add", f"up{n}", "type", "veth", "peer", "name", f"port{n}"),
                     ("-n", self.hub, "link", "set", f"edge{n}", "master", f"zrs-own{n}", "up"), ("-n", self.hub, "link", "set", f"up{n}", "master", f"zrs-own{n}", "up"),
                     ("-n", self.hub, "link", "set", f"port{n}", "master", "zrs-bridge", "up"), ("-n", space, "address", "add", self.addresses[n] + "/24", "dev", "zrs"),
                     ("-n", space, "link", "set", "zrs", "address", self.hardware[n], "gso_max_segs", 1), ("-n", space, "link", "set", "zrs", "up"), ("-n", space, "link", "set", "lo", "up")]
        try:
            for words in todo:
                done = ip(*words)
                if done.returncode != 0:
                    return done.stderr.strip()
        except FileNotFoundError as missing:
            return f"{missing.filename} is not installed"
        for a in range(NODES):
            for b in range(NODES):
                if a != b:
                    self.direct(a, b, self.hardware[b])
        return None

    def direct(self, sender, receiver, hardware):
        done = ip("-n", self.spaces[sender], "neigh", "replace", self.addresses[receiver], "lladdr", hardware, "dev", "zrs", "nud", "permanent")
        if done.returncode != 0:
            raise z.Failure(done.stderr)

    def cut(self, directions):
        for sender, receiver in directions:
            self.direct(sender, receiver, NOBODY)

    def heal(self, directions):
        for sender, receiver in directions:
            self.direct(sender, receiver, self.hardware[receiver])

    def limit(self, node, largest):
        """Longer packets are lost on their way to a node and from it, without notice to any host."""
        done = ip("-n", self.hub, "link", "set", f"port{node}", "mtu", largest)
        if done.returncode != 0:
            raise z.Failure(done.stderr)

    def remove(self):
        for space in self.spaces + [self.hub]:
            ip("netns", "del", space)


class Node:
    def __init__(self, network, number, words, log, environment):
        self.lines, self.log = [], log
        clean = {k: v for k, v in os.environ.items() if not k.startswith("ZORSE_")}
        place = {"PET_NNODES": NODES, "PET_NODE_RANK": number, "PET_MASTER_ADDR": network.addresses[0], "PET_MASTER_PORT": 29600}
        self.process = subprocess.Popen(["ip", "netns", "exec", network.spaces[number]] + words, env={**clean, **{k: str(v) for k, v in place.items()}, **environment},
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def text(self):
        return "\n".join(self.lines)


class Trial:
    """The cut link, the time, the duration, and the expected result."""

    def __init__(self, number, seed, deadlines, kind):
        r = random.Random(seed * 1000003 + number)
        self.number = number
        self.deadline = deadlines[number % len(deadlines)]
        self.a, self.b = r.sample(range(NODES), 2)
        self.two_way = r.random() < 1 / 3
        self.directions = [(self.a, self.b)] + ([(self.b, self.a)] if self.two_way else [])
        self.kind = kind or r.choices(["short", "long", "large"], [4, 5, 1])[0]
        if self.kind == "large":
            self.a, self.b = 0, r.choice([1, 2])  # where activations are sent
        self.short = self.kind == "short"
        self.restarts = self.kind == "long" and r.random() < 0.5
        self.starting = self.kind == "long" and r.random() < 0.2  # before the first step
        self.delay = r.uniform(0, 1.5)
        shares = (0.1, 0.6) if r.random() < 1 / 3 else (0.6, 2 / 3)  # most of them near the limit
        self.seconds = self.deadline * r.uniform(*shares) if self.short else self.deadline + r.uniform(2, 4)

    def name(self):
        arrow = "<->" if self.two_way or self.kind == "large" else "->"
        return (f"trial {self.number}, deadline {self.deadline:g} s: {'large packets ' if self.kind == 'large' else ''}{self.a} {arrow} {self.b}, {self.seconds:.1f} s, {self.delay:.1f} s after "
                f"the {'start' if self.starting else 'first step'}" + (", with restarts" if self.restarts else ""))

    def subjects(self):
        """Ranks that the verdict may name. If the cut is between the coordinator and a rank, this rank is cut off,
        whichever direction is broken."""
        return {self.a, self.b} if self.two_way or 0 in (self.a, self.b) else {self.a}

    def run(self, network, folder, bundle):
        slow = self.short or self.restarts or self.starting
        # Steps take longer than the outage, or continue until the job ends.
        steps = (60 + int(self.deadline) if self.restarts or self.starting else 60 + 2 * int(self.seconds)) if slow else 10 ** 8
        words = [os.path.join(z.BIN, "zorse-run"), bundle, "--data", os.path.join(z.SMALL, "gpt.tokens.bin"), "--max-steps", str(steps), "--heartbeat-timeout", str(self.deadline),
                 "--rdzv-timeout", "20"]
        if self.restarts:
            words += ["--max-restarts=8", "--checkpoint-dir", os.path.join(folder, f"snapshots-{self.number}"), "--save-interval", "10"]
        environment = {"ZORSE_SECRET": os.urandom(16).hex(), "ZORSE_TEST_DELAYS": f"{self.number},{60 if slow else 10}"}
        nodes = [Node(network, n, words, folder, environment) for n in range(NODES)]
        begin = time.monotonic()
        try:
            while not self.starting and not any(line.startswith("step ") for line in nodes[0].lines):
                if time.monotonic() - begin > 60 * z.PATIENCE or nodes[0].process.poll() is not None:
                    return f"no step within {time.monotonic() - begin:.0f} s\n" + nodes[0].text()
                time.sleep(0.02)
            time.sleep(self.delay)
            early = nodes[0].process.poll() is not None
            begin = time.monotonic()
            self.begin(network)
            ended = self.wait(nodes, begin)
            self.end(network)
            limit = time.monotonic() + (90 + 2 * self.deadline) * z.PATIENCE
            for node in nodes:
                try:
                    node.process.wait(max(0.1, limit - time.monotonic()))
                except subprocess.TimeoutExpired:
                    return f"has not ended {limit - begin:.0f} s after the cut\n" + self.all(nodes)
                node.thread.join(5)
            if early:
                return "the job had ended before the cut"
            if ended is not None and ended < 2 / 3 * self.deadline:
                return f"ended {ended:.1f} s after the cut, long before the deadline\n" + self.all(nodes)
            if ended is not None and ended > self.deadline + LATE * z.PATIENCE:
                return f"ended {ended:.1f} s after the cut, expected at most {self.deadline + LATE * z.PATIENCE:.1f} s\n" + self.all(nodes)
            return self.judge(nodes)
        finally:
            self.end(network)
            for node in nodes:
                if node.process.poll() is None:
                    node.process.kill()
                    node.process.wait()

    def begin(self, network):
        if self.kind == "large":
            network.limit(self.b, 600)
        else:
            network.cut(self.directions)

    def end(self, network):
        if self.kind == "large":
            network.limit(self.b, 1500)
        else:
            network.heal(self.directions)

    def wait(self, nodes, begin):
        """Waits until the outage is over, or, if the job should end without a signal, until it ends. Returns the seconds until
        all nodes had ended if they matter."""
        ends = self.kind != "short" and not self.restarts and not self.starting
        while time.monotonic() - begin < (self.deadline + LATE * z.PATIENCE + 20 if ends else self.seconds):
            if ends and all(node.process.poll() is not None for node in nodes):
                return time.monotonic() - begin
            time.sleep(0.02)
        return time.monotonic() - begin if ends else None

    def all(self, nodes):
        return "\n".join(f"--- node {n}, exit code {node.process.returncode}\n{node.text()[-2500:]}" for n, node in enumerate(nodes))

    def judge(self, nodes):
        """An empty list, or what is wrong."""
        codes = [node.process.returncode for node in nodes]
        verdicts = [line for line in nodes[0].lines if re.search(r"error: |restart \d+ of", line)]
        if self.short:
            return "" if codes == [0] * NODES and not verdicts else f"exit codes {codes}, expected 0\n" + self.all(nodes)
        if self.starting and codes == [0] * NODES:  # no rank had joined yet, and all joined later; or the job started again
            return ""
        if codes != [0 if self.restarts else 2] * NODES:
            return f"exit codes {codes}, expected {0 if self.restarts else 2}\n" + self.all(nodes)
        if self.starting:  # which ranks had joined by then is random
            return ""
        if not verdicts:
            return "nothing was noticed\n" + self.all(nodes)
        if self.kind == "large":  # lost to one node and from it, in both directions
            good = f"rank {self.b} (device" in verdicts[0] and "is cut off from" in verdicts[0] and "large packets" in verdicts[0]
            return "" if good else f"the verdict does not say that large packets to or from rank {self.b} are lost\n" + self.all(nodes)
        found = re.search(r"rank (\d) \(device (\w)\)", verdicts[0])
        if not found or int(found.group(1)) not in self.subjects():
            return f"the verdict is about {found.group(0) if found else 'no rank'}, expected one of ranks {sorted(self.subjects())}\n" + self.all(nodes)
        return ""


def prepare(folder):
    cluster = os.path.join(folder, "nodes.yaml")
    with open(cluster, "w") as f:
        f.write("name: three nodes\nnodes:\n")
        for n, device in enumerate(DEVICES):
            f.write(f"  - name: node{n}\n    devices:\n      - {{name: {device}, kind: cpu, flops_per_second: 1e10, memory: 2GiB}}\n")
    bundle = os.path.join(folder, "b.zorse")
    cells = [(0, 3, 0, 8, "a"), (3, 8, 0, 4, "b"), (3, 8, 4, 8, "c")]
    z.compile(os.path.join(z.SMALL, "gpt.onnx"), bundle, cluster, 8, 32, z.plan(folder, "p", 8, list(DEVICES), cells))
    return bundle


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--deadlines", type=lambda text: [float(d) for d in text.split(",")], default=DEADLINES)
    parser.add_argument("--kind", choices=["short", "long", "large"], help="trials of one kind only")
    parser.add_argument("--only", type=int, help="one trial by its number")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=4)
    a = parser.parse_args()
    networks, built, good, begin = queue.Queue(), [], 0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            for number in range(a.at_once):
                network = Network(number)
                built.append(network)
                reason = network.build()
                if reason:
                    print(f"skipped: no network namespaces on a bridge here: {reason}")
                    sys.exit(77)
                networks.put(network)
            bundle = prepare(folder)

            def one(trial):
                network = networks.get()
                try:
                    return trial, trial.run(network, folder, bundle)
                except z.Failure as failure:
                    return trial, str(failure)
                finally:
                    networks.put(network)

            trials = [Trial(n, a.seed, a.deadlines, a.kind) for n in (range(a.trials) if a.only is None else [a.only])]
            with concurrent.futures.ThreadPoolExecutor(a.at_once) as pool:
                for trial, problem in pool.map(one, trials):
                    good += not problem
                    print(f"{'FAIL' if problem else 'ok  '} {trial.name()}" + (": " + problem if problem else ""), flush=True)
        finally:
            for network in built:
                network.remove()
    print(f"{good} of {len(trials)} network cuts end as documented; {time.monotonic() - begin:.0f} s")
    sys.exit(good != len(trials))


if __name__ == "__main__":
    main()
