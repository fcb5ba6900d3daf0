"""Two nodes, each started once as Kubernetes starts pods, with one rank on the first and three on the second. Metrics
are bit-identical to threads of one process. If a rank is killed or a node receives SIGTERM, the other node ends, too.

    nodes.py

As root, the nodes are network, host name and mount namespaces with separate addresses and names, joined by a virtual
cable; otherwise 127.0.0.1 and 127.0.0.2.
"""
import os
import re
import signal
import subprocess
import tempfile
import time

import harness as z
import jobs
from launchers import outcome

LIMIT = 60 * z.PATIENCE


def cluster(folder):
    path = os.path.join(folder, "two-nodes.yaml")
    with open(path, "w") as f:
        f.write("name: two nodes\nnodes:\n  - name: first\n    devices:\n      - {name: a, kind: cpu, flops_per_second: 1e10, memory: 2GiB}\n"
                "  - name: second\n    devices:\n")
        for device in "bcd":
            f.write(f"      - {{name: {device}, kind: cpu, flops_per_second: 1e10, memory: 2GiB}}\n")
    return path


class Pods:
    """Two nodes to run commands on."""

    names = ["gpt-ranks-0-0", "gpt-ranks-0-1"]

    def __init__(self, folder):
        self.holders, self.port = [], z.Ports()  # if nodes are not separate
        self.separate = os.getuid() == 0 and subprocess.run(["unshare", "--net", "--uts", "--mount", "true"], capture_output=True).returncode == 0
        self.addresses = ["10.97.113.1", "10.97.113.2"] if self.separate else ["127.0.0.1", "127.0.0.2"]
        self.leader = self.names[0] + ".gpt" if self.separate else self.addresses[0]
        if not self.separate:
            return
        for name in self.names:
            hosts = os.path.join(folder, "hosts-of-" + name)
            with open(hosts, "w") as f:  # as Debian's installer does: other machines do not reach a machine by the name it has for itself
                f.write("127.0.0.1 localhost\n" + "".join(f"{'127.0.1.1' if n == name else a} {n}.gpt {n}\n" for a, n in zip(self.addresses, self.names)))
            self.holders.append(subprocess.Popen(["unshare", "--net", "--uts", "--mount", "bash", "-c", 'mount --make-rprivate / && mount --bind "$0" /etc/hosts && '
                                                  'hostname "$1" && echo ready && exec sleep infinity', hosts, name], stdout=subprocess.PIPE, text=True))
            if self.holders[-1].stdout.readline() != "ready\n":
                raise z.Failure("a namespace could not be made")
        ends = [f"zp{os.getpid() % 100000}{e}" for e in "ab"]
        subprocess.run(["ip", "link", "add", ends[0], "netns", str(self.holders[0].pid), "type", "veth", "peer", "name", ends[1], "netns", str(self.holders[1].pid)], check=True)
        for holder, end, address in zip(self.holders, ends, self.addresses):
            for words in (["addr", "add", address + "/24", "dev", end], ["link", "set", end, "up"], ["link", "set", "lo", "up"]):
                subprocess.run(["nsenter", "-t", str(holder.pid), "-n", "ip", *words], check=True)

    def start(self, node, environment, words):
        inside = ["nsenter", "-t", str(self.holders[node].pid), "-n", "-u", "-m", "--"] if self.separate else []
        more = [] if self.separate else ["--local-addr", self.addresses[node]]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("ZORSE_")}
        # A separate process group, in which nsenter becomes the command: signals reach the launcher itself.
        return subprocess.Popen(inside + [os.path.join(z.BIN, words[0])] + [str(w) for w in words[1:]] + more, env={**clean, **environment}, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def close(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()


def environments(pods):
    """{name: the two nodes' variables}"""
    port = pods.port
    leader = pods.leader
    jobset = {"JOBSET_NAME": "gpt", "REPLICATED_JOB_NAME": "ranks", "NNODES": "2", **({} if pods.separate else {"MASTER_ADDR": leader, "MASTER_PORT": port})}
    return {
        "PET_NNODES": [{"PET_NNODES": "2", "PET_NODE_RANK": str(n), "PET_MASTER_ADDR": leader, "PET_MASTER_PORT": port} for n in (0, 1)],
        "RANK without LOCAL_RANK": [{"RANK": str(n), "WORLD_SIZE": "2", "MASTER_ADDR": leader, "MASTER_PORT": port} for n in (0, 1)],
        "LeaderWorkerSet": [{"LWS_LEADER_ADDRESS": leader, "LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": str(n)} for n in (0, 1)],
        "JobSet": [{"JOB_COMPLETION_INDEX": str(n), **jobset} for n in (0, 1)],
    }


def both(pods, environment, words, act=None, at=3, limit=LIMIT):
    """Runs both nodes; calls `act` with them at a step. Returns (exit codes, outputs, seconds from `act` to the end)."""
    secret = {"ZORSE_SECRET": os.urandom(16).hex()}
    nodes = [pods.start(n, {**environment[n], **secret}, words) for n in (0, 1)]
    begin = time.monotonic()
    try:
        if act:
            for line in iter(nodes[0].stdout.readline, ""):
                if line.startswith(f"step {at}/"):
                    break
            act(nodes)
            begin = time.monotonic()
        outputs = [node.communicate(timeout=limit)[0] for node in nodes]
    finally:
        for node in nodes:
            if node.poll() is None:
                node.kill()
                node.wait()
    return [node.returncode for node in nodes], outputs, time.monotonic() - begin


def children(process):
    """Ranks that a launcher started."""
    return [pid for pid in jobs.children_of(process.pid) if open(f"/proc/{pid}/comm").read().strip() != "zorse-guard"]


def main():
    results = []

    def note(good, what):
        print(f"{'ok  ' if good else 'FAIL'} {what}", flush=True)
        results.append(good)

    with tempfile.TemporaryDirectory() as folder:
        bundle, data = os.path.join(folder, "b.zorse"), os.path.join(z.SMALL, "gpt.tokens.bin")
        cells = [(0, 3, 0, 4, "a"), (0, 3, 4, 8, "a"), (3, 8, 0, 3, "b"), (3, 8, 3, 6, "c"), (3, 8, 6, 8, "d")]
        z.compile(os.path.join(z.SMALL, "gpt.onnx"), bundle, cluster(folder), 8, 32, z.plan(folder, "p", 8, list("abcd"), cells))
        words = ["zorse-run", bundle, "--data", data, "--max-steps", 6]
        threads = outcome(folder, "threads", lambda more: z.call(*words, "--in-process", *more))
        pods = Pods(folder)
        try:
            for name, environment in environments(pods).items():
                said = []

                def run(more):
                    codes, outputs, _ = both(pods, environment, words + more)
                    said.append("".join(outputs))
                    if codes != [0, 0]:
                        raise z.Failure(f"exit codes {codes}\n" + "\n--\n".join(outputs))
                try:
                    good = outcome(folder, "nodes", run) == threads
                    good = good and re.search(r"4 ranks on " + ("2 hosts" if pods.separate else ".*"), said[0]) is not None
                    note(good, f"{name}: {'equal to threads' if good else 'differs from threads: ' + said[0]}")
                except (z.Failure, subprocess.TimeoutExpired) as failure:
                    note(False, f"{name}: {failure}")

            environment = environments(pods)["PET_NNODES"]
            forever = words[:-1] + [10 ** 8]
            codes, outputs, seconds = both(pods, environment, forever, lambda nodes: os.kill(children(nodes[1])[1], signal.SIGKILL))
            # Only the launcher of the rank's node knows the signal.
            named = [re.search(r"error: rank 2 \(device c\) is gone", outputs[0]) is not None, "rank 2 (device c) was killed by signal 9 (Killed)" in outputs[1]]
            note(codes[0] != 0 and codes[1] == 137 and all(named) and seconds < 4 * z.PATIENCE, f"a rank of the second node killed: exit codes {codes}, {seconds:.1f} s, named by both: {named}"
                 + ("" if all(named) else "\n" + "\n--\n".join(outputs)))

            # The same with snapshots and a restart: both nodes start again. Steps are slowed down, so that the killed
            # step is not the last.
            longer = words[:-1] + [30]
            uninterrupted = outcome(folder, "uninterrupted", lambda more: z.call(*longer, "--in-process", *more))
            slow = [{**e, "ZORSE_TEST_DELAYS": "1,20"} for e in environment]
            said = []

            def broken(more):
                said.append(both(pods, slow, longer + ["--checkpoint-dir", os.path.join(folder, "snapshots"), "--save-interval", 5, "--max-restarts=1"] + more,
                                 lambda nodes: os.kill(children(nodes[1])[1], signal.SIGKILL), at=12))
            equal = outcome(folder, "broken", broken) == uninterrupted
            codes, outputs, _ = said[0]
            good = equal and codes == [0, 0] and "restart 1 of 1 from checkpoint step-000000" in outputs[0]
            note(good, f"a rank of the second node killed, with a restart: exit codes {codes}, {'equal to' if equal else 'differs from'} the uninterrupted run" + ("" if good else "\n" + "\n--\n".join(outputs)))

            for node in (0, 1):
                codes, outputs, seconds = both(pods, environment, forever, lambda nodes: nodes[node].send_signal(signal.SIGTERM))
                note(codes == [130, 130] and seconds < 10 * z.PATIENCE, f"SIGTERM to node {node}: exit codes {codes}, {seconds:.1f} s" + ("" if codes == [130, 130] else "\n" + "\n--\n".join(outputs)))
            codes, outputs, seconds = both(pods, environment, forever, lambda nodes: nodes[1].kill())
            note(codes[0] not in (0, 130) and seconds < 5 * z.PATIENCE, f"the second node's launcher killed: exit codes {codes}, {seconds:.1f} s")
        finally:
            pods.close()
    z.finish(results)


if __name__ == "__main__":
    main()
