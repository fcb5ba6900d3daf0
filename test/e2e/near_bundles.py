"""Compiles bundles for other devices from a bundle alone (zorse-compile --near): they train to the losses of the
first bundle, and wrong uses get an error that names what to do.

    near_bundles.py [COUNT]     default 20 random sets of devices
"""
import json
import os
import random
import sys
import tempfile

import harness as z
import jobs

LIMIT = 2e-6  # relative, of a step's loss in f32: another plan adds in another order
NAMES = ("big", "middle", "small0", "small1")


def losses(folder, bundle, data):
    path = os.path.join(folder, "metrics.jsonl")
    z.call("zorse-run", bundle, "--data", data, "--max-steps", 4, "--in-process", "--quiet", "--metrics-file", path)
    found = [row["loss"] for row in jobs.metrics(path)]
    os.remove(path)
    return found


def manifest(bundle):
    with open(os.path.join(bundle, "manifest.json")) as f:
        return json.load(f)


def random_sets(folder, base, data, count):
    expected, randoms = losses(folder, base, data), random.Random(3)
    near = base
    for number in range(count):
        left_out = randoms.sample(NAMES, randoms.randrange(1, len(NAMES)))
        bundle = os.path.join(folder, f"near{number}.zorse")
        z.call("zorse-compile", "--near", near, "--cluster", os.path.join(base, "cluster.yaml"), "--exclude", ",".join(left_out), "--quiet", "-o", bundle,
               f"--weights={randoms.choice(('embed', 'reference', 'auto'))}")
        found = losses(folder, bundle, data)
        devices = [device["name"] for device in manifest(bundle)["devices"]]
        kept = {name: sha for name, sha in manifest(base)["files"].items() if name.startswith(("kernels/", "functions", "summary"))}
        yield devices == [name for name in NAMES if name not in left_out]
        yield kept.items() <= manifest(bundle)["files"].items()
        yield z.check(f"losses on {', '.join(devices)}", max(abs(a - b) / abs(b) for a, b in zip(found, expected)), LIMIT)
        near = randoms.choice((base, bundle))  # also from bundles that were made in this way


def refusals(folder, base, model):
    out = os.path.join(folder, "refused.zorse")
    for words, expected in (
            (("--near", base, "--exclude", "t4:7"), "the cluster has no device 't4:7'; its devices are big, middle, small0, small1"),
            (("--near", base, "--exclude", ",".join(NAMES)), "leave at least one"),
            (("--near", base, "--lr", "0.1"), "leave this out with --near"),
            ((model, "--near", base), "leave this out with --near"),
            (("--near", base, "--global-batch-size", "32"), "has steps of 16 samples"),
            (("--near", folder), "manifest.json"),
            ((model, "--exclude", "big"), "needs --near"),
            ((), "expects an ONNX file, or --near BUNDLE")):
        code, _, err = z.call("zorse-compile", *words, "-o", out, ok=False)
        good = code == 1 and expected in err and not os.path.exists(out)
        print(f"{'ok  ' if good else 'FAIL'} zorse-compile {' '.join(map(str, words))}: {err.strip()[:200]}")
        yield good


def missing_functions(folder, base):
    """A given plan that recomputes activations, which the bundle's own plan does not: an error with a remedy that works."""
    with open(os.path.join(base, "plan.json")) as f:
        plan = json.load(f)
    for cell in plan["cells"]:
        cell["activations"] = "recompute"
    path, out = os.path.join(folder, "recompute.plan.json"), os.path.join(folder, "recompute.zorse")
    with open(path, "w") as f:
        json.dump(plan, f)
    code, _, err = z.call("zorse-compile", "--near", base, "--plan", path, "-o", out, ok=False)
    print(f"recomputation that was not compiled: {err.strip().splitlines()[-1][:200]}")
    yield code == 1 and "--compile-all-functions" in err and not os.path.exists(out)
    whole = os.path.join(folder, "whole.zorse")
    z.call("zorse-compile", os.path.join(z.ROOT, "models/small/gpt-bytes.onnx"), "--cluster", os.path.join(base, "cluster.yaml"), "--plan", os.path.join(base, "plan.json"),
           "--global-batch-size", 16, "--seq-length", 64, "--quiet", "--compile-all-functions", "-o", whole)
    code, _, err = z.call("zorse-compile", "--near", whole, "--plan", path, "--quiet", "-o", out, ok=False)
    print(err.strip())
    yield code == 0


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with tempfile.TemporaryDirectory() as folder:
        model, base, data = os.path.join(z.ROOT, "models/small/gpt-bytes.onnx"), os.path.join(folder, "base.zorse"), os.path.join(folder, "data.txt")
        with open(data, "wb") as f:
            f.write(bytes(random.Random(5).choices(range(97, 123), k=100_000)))
        z.call("zorse-compile", model, "--cluster", os.path.join(z.ROOT, "models/clusters/four-unequal-cpus.yaml"), "--plan",
               os.path.join(z.ROOT, "models/clusters/four-unequal-cpus.gpt-bytes.plan.json"), "--global-batch-size", 16, "--seq-length", 64, "--quiet", "-o", base)
        results = [*random_sets(folder, base, data, count), *refusals(folder, base, model), *missing_functions(folder, base)]
    z.finish(results)


if __name__ == "__main__":
    main()
