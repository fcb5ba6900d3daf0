"""Compile time of a model for 1 and for 8 devices with a cold kernel cache and a warm one.

    compile_time.py MODEL.onnx [--batch 16] [--sequence 256] [--limit 5]
"""
import argparse
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import harness as z

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--sequence", type=int, default=256)
parser.add_argument("--limit", type=float, default=5.0)
a = parser.parse_args()
worst = 0.0
with tempfile.TemporaryDirectory() as folder:
    for devices in (1, 8):
        cluster = z.cluster(folder, [(f"d{i}", 1e10 * (1 + i % 3)) for i in range(devices)])
        with open(cluster) as f:
            text = f.read().replace("2GiB", "20GiB")
        with open(cluster, "w") as f:
            f.write(text)
        for cache in ("cold", "warm"):
            os.environ["ZORSE_CACHE"] = os.path.join(folder, f"cache-{devices}")
            begin = time.monotonic()
            z.compile(a.model, os.path.join(folder, f"{devices}-{cache}.zorse"), cluster, a.batch, a.sequence, extra=("--weights=reference",))
            seconds = time.monotonic() - begin
            worst = max(worst, seconds)
            print(f"{devices} device(s), {cache} kernel cache: {seconds:.2f} s", flush=True)
print(f"slowest {worst:.2f} s (limit {a.limit:g})")
sys.exit(0 if worst <= a.limit else 1)
