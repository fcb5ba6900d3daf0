#!/usr/bin/env python3
"""Time from opening a cluster file to closing plan.json, for clusters of 64 to 4,096 devices.

Prints one line per cluster. Fails if 64 devices take more than 6 seconds, 512 of two types more than 1.2, or 4,096 of
four types on four sites more than 12. The limits are for two idle cores: if other processes use them, half of the CPU time counts
instead of the elapsed time.
"""
import argparse
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

DEVICES = {  # per node: type, port, card, flow
    "a100": ("A100-40", "300 GB/s", "6.0 GB/s", "2.4 GB/s"),
    "v100": ("V100-16", "150 GB/s", "5.8 GB/s", "1.7 GB/s"),
    "a10g": ("A10G", "24 GB/s", "5.0 GB/s", "1.2 GB/s"),
    "t4": ("T4", "12 GB/s", "5.0 GB/s", "1.2 GB/s"),
}


def cluster(devices, sites):
    """`devices`: {key: count}, distributed evenly to the sites, four per node."""
    lines = [f"name: generated-{sum(devices.values())}", "templates:", "  nodes:"]
    for key in devices:
        kind, port, card, flow = DEVICES[key]
        lines.append(f"    {key}x4: {{device_link: {{bandwidth: {port}, latency: 5 us}}, nic: {{bandwidth: {card}, latency: 10 us, per_flow_bandwidth: {flow}}}}}")
    lines.append("sites:")
    for s in range(sites):
        lines.append(f"  - {{name: s{s}, fabric: {{bandwidth: unlimited, latency: 80 us}}}}")
    lines.append("nodes:")
    for s in range(sites):
        for key, count in devices.items():
            lines.append(f"  - {{name: {key}-{s}, template: {key}x4, site: s{s}, count: {count // 4 // sites}, devices: [{{name: {key}-{s}, type: {DEVICES[key][0]}, count: 4}}]}}")
    if sites > 1:
        lines.append("links: {inter_site: {bandwidth: 12.5 GB/s, latency: 20 ms, per_flow_bandwidth: 1 GB/s}}")
    return "\n".join(lines) + "\n"


CASES = [  # devices, sites, model, tokens per batch, limit in seconds
    ({"a100": 32, "v100": 32}, 1, "llama-7b", 1 << 20, 6.0),
    ({"a100": 64, "v100": 64}, 1, "llama-13b", 1 << 20, None),
    ({"a100": 64, "v100": 192}, 1, "llama-13b", 1 << 20, None),
    ({"a100": 128, "v100": 384}, 1, "llama-33b", 1 << 20, 1.2),
    ({"a100": 256, "v100": 768}, 1, "llama-65b", 1 << 21, None),
    ({"a100": 1024, "v100": 1024, "a10g": 1024, "t4": 1024}, 4, "llama-65b", 1 << 25, 12.0),
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=str(ROOT / "build/release"))
    parser.add_argument("--quick", action="store_true", help="skip the largest cluster")
    arguments = parser.parse_args()
    failed = 0
    worst = {}
    with tempfile.TemporaryDirectory() as folder:
        for devices, sites, model, tokens, limit in CASES:
            count = sum(devices.values())
            if arguments.quick and count > 1024:
                continue
            path = pathlib.Path(folder) / "cluster.yaml"
            path.write_text(cluster(devices, sites))
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            run = subprocess.run([f"{arguments.build}/bin/planning-time", "--cluster", path, "--model", model, "--tokens", str(tokens), "--threads", "2",
                                  "--plan", str(pathlib.Path(folder) / "plan.json")], capture_output=True, text=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if run.returncode != 0:
                sys.exit(f"{count} devices: {run.stderr.strip()}")
            line = run.stdout.strip().splitlines()[0]
            clock = float(line.split(": ")[1].split(" s")[0])
            processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            seconds = min(clock, processor / min(2, os.cpu_count() or 1)) if processor < 1.5 * clock else clock
            worst[count] = seconds
            verdict = "" if limit is None else f", limit {limit:g} s: {'kept' if seconds <= limit else 'exceeded'}"
            print(f"{line}; processor {processor:.2f} s, {(pathlib.Path(folder) / 'plan.json').stat().st_size / 1e6:.1f} MB of plan{verdict}", flush=True)
            failed += limit is not None and seconds > limit
    print("; ".join(f"{count} devices {seconds:.2f} s" for count, seconds in worst.items()))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
