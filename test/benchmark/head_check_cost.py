"""Cost of checking the imported loss, as a fraction of the CPU time of compiling.

    head_check_cost.py [--limit 5] [--repeats 5] MODEL[:SEQUENCE] ...
"""
import argparse
import os
import resource
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import harness as z

parser = argparse.ArgumentParser()
parser.add_argument("models", nargs="+")
parser.add_argument("--limit", type=float, default=5.0)
parser.add_argument("--repeats", type=int, default=5)
a = parser.parse_args()


def seconds(command, repeats, **more):
    """Minimum CPU time of a command."""
    best = float("inf")
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


worst = 0.0
with tempfile.TemporaryDirectory() as folder:
    cluster = z.cluster(folder, [("d0", 1e10)])
    with open(cluster) as f:
        text = f.read().replace("2GiB", "20GiB")
    with open(cluster, "w") as f:
        f.write(text)
    for word in a.models:
        model, _, sequence = word.partition(":")
        shape = [f"--seq-length={sequence}"] if sequence else []
        importing = [os.path.join(z.BIN, "zorse-import"), model, "--quiet", *shape]
        unchecked, checked = seconds(importing + ["--trust-import"], a.repeats), seconds(importing, a.repeats)
        compiling = [os.path.join(z.BIN, "zorse-compile"), model, "--cluster", cluster, "--global-batch-size=8", *shape, "--weights=reference", "-o", os.path.join(folder, "m.zorse")]
        whole = min(seconds(compiling, 1, env=dict(os.environ, ZORSE_CACHE=os.path.join(folder, f"cache{n}"))) for n in range(2))
        share = 100 * max(0.0, checked - unchecked) / whole
        worst = max(worst, share)
        print(f"{os.path.basename(model)}: {1000 * (checked - unchecked):.0f} ms of {whole:.2f} s compiling, {share:.1f} %", flush=True)
print(f"at most {worst:.1f} % of compiling (limit {a.limit:g} %)")
sys.exit(0 if worst <= a.limit else 1)
