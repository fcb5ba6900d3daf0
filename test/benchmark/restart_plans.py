#!/usr/bin/env python3
"""Seconds in which a plan is adapted to a changed cluster, and its step compared with that of a full search.

    restart_plans.py [--quick] [DEVICES…]

Clusters of 24 to 512 devices lose a device, a node or two nodes, or gain a node. Prints one line per change. Fails if a
repair takes more than 1 s, or if its step is more than 5 % longer than that of a full search on the same cluster. The
limit is for two idle cores: if other processes use them, the seconds of one core count if they are fewer.
"""
import argparse
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS, RATIO = 1.0, 1.05

DEVICES = {  # per node of eight: type, port, card, flow
    "a100": ("A100-40", "300 GB/s", "6.0 GB/s", "2.4 GB/s"),
    "v100": ("V100-16", "150 GB/s", "5.8 GB/s", "1.7 GB/s"),
    "t4": ("T4", "12 GB/s", "5.0 GB/s", "1.2 GB/s"),
}
CASES = [  # nodes of eight devices by type, model
    ({"a100": 1, "v100": 2}, "llama-7b"),
    ({"a100": 4, "v100": 4}, "llama-7b"),
    ({"a100": 4, "v100": 8, "t4": 4}, "llama-7b"),
    ({"a100": 8, "v100": 24}, "llama-13b"),
    ({"a100": 16, "v100": 48}, "llama-33b"),
]
QUICK = 64  # devices of the largest cluster of the quick form


def cluster(nodes):
    """`nodes`: lists of device names by node name, each name beginning with the key of its type."""
    lines = ["name: changed", "sites: [{name: s, fabric: {bandwidth: unlimited, latency: 80 us}}]", "nodes:"]
    for name, devices in nodes.items():
        kind, port, card, flow = DEVICES[name.split("-")[0]]
        listed = ", ".join(f"{{name: '{device}', type: {kind}}}" for device in devices)
        lines.append(f"  - {{name: {name}, site: s, device_link: {{bandwidth: {port}, latency: 5 us}}, "
                     f"nic: {{bandwidth: {card}, latency: 10 us, per_flow_bandwidth: {flow}}}, devices: [{listed}]}}")
    return "\n".join(lines) + "\n"


def changes(nodes):
    """Name, nodes of the old plan, nodes after the change."""
    names = list(nodes)
    first, last = names[0], names[-1]
    without = lambda *gone: {name: devices for name, devices in nodes.items() if name not in gone}
    yield "1 device lost", nodes, {**nodes, first: nodes[first][:3] + nodes[first][4:]}
    yield "1 node lost", nodes, without(last)
    if len(nodes) > 3:
        yield "2 nodes lost", nodes, without(first, last)
    else:
        yield "2 nodes lost", nodes, without(*names[1:])
    yield "1 node joined", without(last), nodes


class Planner:
    def __init__(self, build, folder, model):
        self.build, self.folder, self.model = build, pathlib.Path(folder), model
        self.searched = {}

    def plan(self, nodes, near=None):
        """Returns the path of the plan, its step, and the seconds of planning."""
        text = cluster(nodes)
        if near is None and text in self.searched:
            return self.searched[text]
        number = len(list(self.folder.iterdir()))
        path, made = self.folder / f"{number}.yaml", self.folder / f"{number}.plan.json"
        path.write_text(text)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run = subprocess.run([f"{self.build}/bin/planning-time", "--cluster", path, "--model", self.model, "--threads", "2", "--plan", made,
                              *(["--near", near] if near else [])], capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if run.returncode != 0:
            sys.exit(run.stderr.strip())
        clock, step = (float(n) for n in re.search(r": ([0-9.]+) s .* step ([0-9.]+) s", run.stdout).groups())
        processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        clock = min(clock, processor)
        moved = re.search(r"([0-9.]+) GB moved", run.stdout)
        result = made, step, clock, float(moved.group(1)) if moved else 0.0
        if near is None:
            self.searched[text] = result
        return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("devices", nargs="*", type=int, help="only clusters of these sizes")
    parser.add_argument("--build", default=str(ROOT / "build/release"))
    parser.add_argument("--quick", action="store_true", help=f"clusters of up to {QUICK} devices")
    arguments = parser.parse_args()
    failed, slowest, worst, count = 0, 0.0, 0.0, 0
    for types, model in CASES:
        nodes = {f"{kind}-{n}": [f"{kind}-{n}:{d}" for d in range(8)] for kind, number in types.items() for n in range(number)}
        size = sum(map(len, nodes.values()))
        if (arguments.devices and size not in arguments.devices) or (arguments.quick and size > QUICK):
            continue
        with tempfile.TemporaryDirectory() as folder:
            planner = Planner(arguments.build, folder, model)
            for name, old, new in changes(nodes):
                near = planner.plan(old)[0]
                full = planner.plan(new)
                repaired = planner.plan(new, near)
                ratio = repaired[1] / full[1]
                kept = repaired[2] <= SECONDS and ratio <= RATIO
                print(f"{size} devices, {model}, {name}: {repaired[2]:.2f} s (search {full[2]:.1f}), step {repaired[1]:.3f} s, "
                      f"ratio {ratio:.3f}, {repaired[3]:.1f} GB moved{'' if kept else ': exceeds the limits'}", flush=True)
                failed += not kept
                slowest, worst, count = max(slowest, repaired[2]), max(worst, ratio), count + 1
    print(f"{count} changes: at most {slowest:.2f} s (limit {SECONDS:g}), ratio at most {worst:.3f} (limit {RATIO:g})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
