"""Processor seconds of zorse-plan for 2 to 8 devices, at one thread, import and report included.

    small_planning_time.py [CASE…]

Prints a line per case. Fails if a case takes longer than its limit, or ends otherwise than expected. What a user waits
for is bounded also where memory is short, with reasons, and where no plan fits.
"""
import json
import os
import resource
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
TOOL = os.path.join(ROOT, "build", "release", "bin", "zorse-plan")


def node(name, **types):
    return {"name": name, "devices": [{"name": f"{name}-{kind.lower()}", "type": kind, "count": count} for kind, count in types.items()]}


MIXED = [node("a", RTX4090=2, RTX3090=2)]
EIGHT = [node("a", RTX4090=8)]
TWO = [node("a", RTX4090=1, RTX3090=1)]
FAR = [node("a", RTX4090=2), node("b", RTX3090=2)]
CPUS = "four-unequal-cpus"
# Name, nodes or cluster file, model, sequence, batch, words, seconds allowed, whether a plan fits.
CASES = [
    ("four-short-of-memory", MIXED, "llama-7b,precision=bf16", 2048, 64, [], 3, True),
    ("four-short-of-memory-explained", MIXED, "llama-7b,precision=bf16", 2048, 64, ["--explain"], 8, True),
    ("eight-7b", EIGHT, "llama-7b,precision=bf16", 2048, 64, [], 3, True),
    ("eight-13b", EIGHT, "llama-13b,precision=bf16", 2048, 64, [], 3, True),
    ("eight-13b-page", EIGHT, "llama-13b,precision=bf16", 2048, 64, ["--html", "{page}"], 8, True),
    ("two-98-units", TWO, "gpt2-xl,precision=bf16", 1024, 64, [], 3, True),
    ("two-nodes", FAR, "llama3-8b,precision=bf16", 2048, 64, [], 3, True),
    ("nothing-fits", CPUS, "gpt2-xl,precision=f16", 1024, 256, [], 15, False),
]


def run(case, folder):
    name, nodes, model, sequence, batch, words, limit, fits = case
    path = os.path.join(ROOT, "models", "clusters", f"{nodes}.yaml")
    if not isinstance(nodes, str):
        path = os.path.join(folder, "cluster.yaml")
        with open(path, "w") as f:
            json.dump({"nodes": nodes}, f)
    words = [word.format(page=os.path.join(folder, "page.html")) for word in words]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([TOOL, "--model-shape", model, "--seq-length", str(sequence), "--global-batch-size", str(batch), "--cluster", path, "--num-threads", "1",
                           "-o", os.path.join(folder, "plan.json"), "--quiet", *words], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime - before.ru_utime
    if (done.returncode == 0) != fits:
        print(f"{name}: exit {done.returncode}: {done.stderr[-1000:]}")
        return name, seconds, False
    print(f"{name}: {seconds:.2f} s (limit {limit})", flush=True)
    return name, seconds, seconds <= limit


def main():
    with tempfile.TemporaryDirectory() as folder:
        results = [run(case, folder) for case in CASES if not sys.argv[1:] or case[0] in sys.argv[1:]]
    print("; ".join(f"{name} {seconds:.1f}" for name, seconds, _ in results) + " s of one core")
    return 0 if all(ok for _, _, ok in results) else 1


if __name__ == "__main__":
    sys.exit(main())
