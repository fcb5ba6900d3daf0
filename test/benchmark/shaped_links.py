"""Sums of gradients by levels between network namespaces with shaped links: one namespace per node, whose card has a
limited rate in both directions (tbf), and one switch per site, whose uplinks have another one.

    shaped_links.py [CASES] [--megabits 200] [--uplink 100] [--steps 10]

zorse-run executes a data-parallel step of a model with one large matrix, one process per device in the namespace of its
node, along levels and by a pairwise exchange (`links.collectives`). The time of the sums, in the fastest step, is
compared with the plan's simulated times, and the bytes that cross every card with those of the programs' gathers and
reductions. Needs the right to make network namespaces; without it the script says so and exits with 77. It removes its
namespaces, also if it fails.

Not among the cases, because simulations are wrong there: 2+2/2+2 takes 1.3 times the simulated time (exchanges of two
pairs share a card, but simulations serve them in sequence, so that the next level begins early), and 4+1+1 0.75.

CASES: nodes by their devices, sites separated by '/', uneven owners after ':', for example 2+2/2+2 or 4+1+1:1,0,0,0,0,0.
"""
import argparse
import collections
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import harness as z
import numpy as np
import onnx_file
from jobs import Store

COLUMNS = 1 << 19  # of the matrix of 4 rows: 8 MiB of f32
PAYLOAD = 1448 / 1514  # of a frame: tbf counts whole frames, the cluster file what programs can use
CASES = "2+2 2+2+2+2 4+4 1+3 2+2+2:1,0,0,0,0,0"


def must(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise z.Failure(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Case:
    def __init__(self, text):
        self.text = text
        nodes, _, owners = text.partition(":")
        self.sites = [[int(devices) for devices in site.split("+")] for site in nodes.split("/")]
        self.nodes = [(s, devices) for s, site in enumerate(self.sites) for devices in site]
        self.node_of = [n for n, (_, devices) in enumerate(self.nodes) for _ in range(devices)]
        self.devices = [f"d{i}" for i in range(len(self.node_of))]
        self.owners = [float(share) for share in owners.split(",")] if owners else None
        sizes = [devices for _, devices in self.nodes]
        self.equal = not owners and (len(set(sizes)) == 1 or sizes == [1, 3])


class Network:
    """Namespaces of nodes, and of switches that join them."""

    def __init__(self, case):
        self.tag, self.spaces, self.case = f"zsl{os.getpid()}", [], case

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for space in self.spaces:
            for pid in subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True).stdout.split():
                os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", space], capture_output=True)

    def _space(self, name):
        must("ip", "netns", "add", self.tag + name)
        self.spaces.append(self.tag + name)
        must("ip", "-n", self.spaces[-1], "link", "set", "dev", "lo", "up")
        return self.spaces[-1]

    def _switch(self, name):
        space = self._space(name)
        must("ip", "-n", space, "link", "add", "name", "br0", "type", "bridge")
        must("ip", "-n", space, "link", "set", "dev", "br0", "up")
        return space

    def _cable(self, space, device, switch, port, megabits):
        """A link whose two directions have a limited rate."""
        must("ip", "link", "add", "name", device, "netns", space, "type", "veth", "peer", "name", port, "netns", switch)
        must("ip", "-n", switch, "link", "set", "dev", port, "master", "br0", "up")
        must("ip", "-n", space, "link", "set", "dev", device, "up")
        for where, end in ((space, device), (switch, port)):
            # A queue of 4 MB: a shorter one loses packets where many flows meet.
            must("tc", "-n", where, "qdisc", "add", "dev", end, "root", "tbf", "rate", f"{megabits}mbit", "burst", "64k", "limit", "4mb")

    def _make(self):
        switches = [self._switch(f"s{s}") for s in range(len(self.case.sites))]
        if len(switches) > 1:
            hub = self._switch("h")
            for s, switch in enumerate(switches):
                self._cable(switch, "wan", hub, f"u{s}", a.uplink)
                must("ip", "-n", switch, "link", "set", "dev", "wan", "master", "br0")
        for n, (site, _) in enumerate(self.case.nodes):
            space = self._space(f"n{n}")
            self._cable(space, "card", switches[site], f"p{n}", a.megabits)
            must("ip", "-n", space, "address", "add", f"{self.address(n)}/24", "dev", "card")

    def node(self, n):
        return f"{self.tag}n{n}"

    @staticmethod
    def address(n):
        return f"10.215.6.{n + 1}"

    def bytes(self):
        """Bytes that have left and entered each node."""
        files = [f"/sys/class/net/card/statistics/{way}_bytes" for way in ("tx", "rx")]
        return np.array([[int(line) for line in must("ip", "netns", "exec", self.node(n), "cat", *files).split()] for n in range(len(self.case.nodes))])


def write(path, text):
    with open(path, "w") as f:
        f.write(text)
    return path


def write_model():
    """loss = mean((x w - y)^2) with a w of 4 x COLUMNS: little work for its size."""
    weight = onnx_file.number(1, 4) + onnx_file.number(1, COLUMNS) + onnx_file.number(2, 1) + onnx_file.text(8, "w") + onnx_file.text(9, np.full((4, COLUMNS), 0.01, np.float32).tobytes())
    with open("model.onnx", "wb") as f:
        f.write(onnx_file.regression(after="x", weight=(4, COLUMNS), weights=weight))
    np.save("x.npy", np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32))
    np.save("y.npy", np.zeros((8, COLUMNS), np.float32))


def compile(case, how, together=False):
    """Compiles a data-parallel plan. Returns the bundle.
    :param together: one node has all devices: Gloo then adds nothing before a card, and every contribution crosses
    """
    text = "name: shaped\nnodes:\n"
    for d, node in zip(case.devices, case.node_of):
        if d == case.devices[0] or (not together and d == case.devices[case.node_of.index(node)]):
            text += f"  - name: n{node}\n    site: s{case.nodes[node][0]}\n    devices:\n"
        text += f"      - {{name: {d}, kind: cpu, flops_per_second: 2e10, memory: 1GiB, threads: 1}}\n"
    text += "sites:\n" + "".join(f"  - {{name: s{s}" + (f", uplink: {{bandwidth: {a.uplink * PAYLOAD:.2f} Mbit/s, latency: 50 us}}" if len(case.sites) > 1 else "") + "}\n" for s in range(len(case.sites)))
    text += f"links:\n  collectives: {how}\n  intra_node: {{bandwidth: 1 GB/s, latency: 50 us}}\n  inter_node: {{bandwidth: {a.megabits * PAYLOAD:.2f} Mbit/s, latency: 100 us}}\n"
    text += f"  inter_site: {{bandwidth: unlimited, latency: 100 us}}\n" if len(case.sites) > 1 else ""
    state = {"default_sharding": "equal"}
    if case.owners:
        state["groups"] = [{"group": "*", "owners": [{"device": d, "fraction": share / sum(case.owners)} for d, share in zip(case.devices, case.owners) if share]}]
    plan = {"global_batch_size": len(case.devices), "devices": case.devices, "state": state, "stages": [{"units": [0, 1], "devices": case.devices}]}
    bundle = re.sub("[^0-9]", "-", case.text) + f"-{how}{'-together' if together else ''}.zorse"
    z.call("zorse-compile", "model.onnx", "--cluster", write("cluster.yaml", text), "--plan", write("plan.json", json.dumps(plan)), "--global-batch-size", len(case.devices),
           "--optimizer", "sgd", "--infer-trainable", "--quiet", "-o", bundle)
    return bundle


def runs_of(text, name):
    """The runs [(device, begin, end)] of a list in the text of an instruction."""
    found = re.search(rf" {name} \[(@[^\]]*)\]", text)
    return [(device, int(begin), int(end)) for device, begin, end in re.findall(r"@(\w+) (\d+):(\d+)", found[1])] if found else []


class Model:
    """What the programs of a bundle say: simulated seconds of the sums, and bytes of gathers and reductions that leave
    and enter each node in a step."""

    def __init__(self, case, bundle):
        node = dict(zip(case.devices, case.node_of))
        self.bytes, times, seen = np.zeros((len(case.nodes), 2)), [], set()
        for device in case.devices:
            _, program, _ = z.call("zorse-inspect", "--program", device, bundle)
            for kind, number, text in re.findall(r"exec\.(all_gather|reduce_scatter) (\d+) (.*)", program):
                begin, end = re.search(r" time \[([\d.e-]+), ([\d.e-]+)\]", text).groups()
                if kind == "reduce_scatter":
                    times.append((float(begin), float(end)))
                if number not in seen:
                    self._add(node, kind, text)
                seen.add(number)
        self.seconds = max(end for _, end in times) - min(begin for begin, _ in times)

    def _add(self, node, kind, text):
        members = re.search(r" (?:of|readers) \[([^\]]*)\]", text)[1]
        parts = runs_of(text, "terms") or runs_of(text, "reads") or [(d, 0, 1 << 62) for d in re.findall(r"@(\w+)", members)]
        for owner, begin, end in runs_of(text, "shards"):
            for other, first, last in parts:
                if node[other] != node[owner] and first <= begin and end <= last:
                    source, target = (owner, other) if kind == "all_gather" else (other, owner)
                    self.bytes[node[source], 0] += 4 * (end - begin)
                    self.bytes[node[target], 1] += 4 * (end - begin)


def execute(case, network, bundle):
    """Runs steps. Returns the seconds of the sums of each, and the bytes that crossed the cards."""
    ports = Store()  # reserved while it exists
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ZORSE_")}
    environment.update(ZORSE_JOB="shaped/" + uuid.uuid4().hex, ZORSE_SECRET=uuid.uuid4().hex, ZORSE_WORLD_SIZE=str(len(case.devices)),
                       ZORSE_STORE=str(ports).replace("127.0.0.1", network.address(0)))
    words = [os.path.join(z.BIN, "zorse-run"), bundle, "--data", "x=x.npy,y=y.npy", "--max-steps", str(a.steps), "--trace", "trace.json", "--trace-steps", str(a.steps), "--quiet", "--rdzv-timeout", "60"]
    before = network.bytes()
    ranks = []
    for rank, node in enumerate(case.node_of):
        local = rank - case.node_of.index(node)
        places = {"ZORSE_RANK": str(rank), "ZORSE_LOCAL_RANK": str(local), "ZORSE_LOCAL_WORLD_SIZE": str(case.node_of.count(node))}
        ranks.append(subprocess.Popen(["ip", "netns", "exec", network.node(node), *words, "--local-addr", network.address(node)], env={**environment, **places},
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    failures = []
    for rank, process in enumerate(ranks):
        try:
            _, said = process.communicate(timeout=120 * z.PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            said = "takes too long"
        if process.returncode != 0:
            failures.append(f"rank {rank}: {said}")
    if failures:
        raise z.Failure("; ".join(failures))
    with open("trace.json") as f:
        events = json.load(f)["traceEvents"]
    return fastest_sums([e for e in events if e.get("cat") == "REDUCE"]), (network.bytes() - before) / a.steps


def fastest_sums(reductions):
    """Seconds from when two members of a reduction have begun it, and bytes can move, until the end of the last one: of
    the fastest step, because others may use the machine. The first step does not count."""
    seconds = []
    for step in range(2, a.steps + 1):
        begins, end = collections.defaultdict(list), 0
        for event in reductions:
            if event["args"]["step"] == step:
                begins[event["args"]["entry"]].append(event["ts"])
                end = max(end, event["ts"] + event["dur"])
        seconds.append((end - min(sorted(begin)[1] for begin in begins.values())) * 1e-6)
    return min(seconds)


def test(case):
    """Returns the errors of a case, after printing its line."""
    seconds, model, errors = {}, {}, []
    with Network(case) as network:
        for how in ("levels", "exchange"):
            model[how] = Model(case, compile(case, how))
            seconds[how], carried = execute(case, network, compile(case, how, together=how == "exchange"))
            # Headers, and messages of the start and the end of the run.
            excess = carried / model[how].bytes - 1
            if excess.min() < 0 or excess.max() > a.excess:
                errors.append(f"{how}: cards carry {1 + excess.min():.3f} to {1 + excess.max():.3f} times the model's bytes")
    ratio = seconds["levels"] / model["levels"].seconds
    gain, expected = seconds["exchange"] / seconds["levels"], model["exchange"].seconds / model["levels"].seconds
    print(f"{case.text:22} {1e3 * model['levels'].seconds:6.0f} {1e3 * seconds['levels']:6.0f} {ratio:6.2f}   {1e3 * model['exchange'].seconds:6.0f} {1e3 * seconds['exchange']:6.0f} {expected:6.2f} {gain:6.2f}   "
          f"{1 + excess.max():.3f}", flush=True)
    limit = 0.1 if case.equal else 0.2
    if ratio > (1 + limit) * z.PATIENCE or ratio < 1 - limit:
        errors.append(f"the sums take {ratio:.2f} of the model's time, expected within {limit:.0%}")
    if gain < 0.9 * expected / z.PATIENCE:
        errors.append(f"levels are {gain:.2f} times as fast as the exchange, expected 0.9 of the model's {expected:.2f}")
    return [f"{case.text}: {error}" for error in errors]


def main():
    write_model()
    print(f"cards of {a.megabits:g} Mbit/s, uplinks of {a.uplink:g} Mbit/s, {4 * 4 * COLUMNS >> 20} MiB; ms\n"
          f"{'nodes':22} levels: model, run, ratio   exchange: model, run; gain: model, run   bytes of a card / model's")
    errors = [error for case in a.cases.split() for error in test(Case(case))]
    for error in errors:
        print("FAILED:", error)
    print(f"{len(a.cases.split())} clusters: {len(errors)} times or bytes not as in the model")
    return 1 if errors else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="?", default=CASES)
    parser.add_argument("--megabits", type=float, default=200, help="rate of a node's card")
    parser.add_argument("--uplink", type=float, default=100, help="rate of a site's uplink")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--excess", type=float, default=0.1, help="largest share of bytes beyond the model's")
    a = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # removes the namespaces
    with tempfile.TemporaryDirectory() as folder:
        try:
            with Network(Case("1/1")):
                pass
        except (z.Failure, FileNotFoundError) as failure:
            print(f"skipped: no network namespaces with shaped links here: {failure}")
            sys.exit(77)
        os.chdir(folder)
        sys.exit(main())
