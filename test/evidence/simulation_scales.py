"""Seconds and memory of simulating a bundle.

    simulation_scales.py BUNDLE [--seconds 20] [--mebibytes 4096]     the limits
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import harness as z

parser = argparse.ArgumentParser()
parser.add_argument("bundle")
parser.add_argument("--seconds", type=float, default=20)
parser.add_argument("--mebibytes", type=float, default=4096)
a = parser.parse_args()
with tempfile.TemporaryDirectory() as folder:
    figures = os.path.join(folder, "figures.json")
    begin = time.monotonic()
    subprocess.run([os.path.join(z.BIN, "zorse-run"), a.bundle, "--simulate", "--json", figures], check=True)
    took, memory = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    with open(figures) as f:
        said = json.load(f)
print(f"{len(said['devices'])} devices, {said['steps']} steps of {said['entries']} entries: {took:.1f} s (limit {a.seconds:g}), {memory:.0f} MiB (limit {a.mebibytes:g})")
sys.exit(took > a.seconds or memory > a.mebibytes)
