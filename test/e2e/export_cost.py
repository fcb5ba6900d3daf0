"""Measures the cost of the comparison in an export: seconds of zorse.export with and without it (exit code 77 without
PyTorch).

    export_cost.py [--quick]      --quick: without GPT-2 124M

Small models are measured twice: the first export of a process, as in scripts and zorse-export, and later ones, as in
notebooks.
"""
import os
import subprocess
import sys
import tempfile
import time

import harness as z
from python_package_torch import ensure_torch

os.environ["ZORSE_BIN"] = z.BIN
sys.path.insert(0, os.path.join(z.ROOT, "python"))
sys.path.insert(0, os.path.join(z.ROOT, "models"))


def timed(module, path, **more):
    """Seconds of an export, and of the phases of its comparison."""
    import zorse
    from zorse import _check

    parts, kept = {}, {name: getattr(_check.Check, name) for name in ("begin", "finish")}

    def measured(name):
        def call(*args):
            begin = time.monotonic()
            try:
                return kept[name](*args)
            finally:
                parts[name] = time.monotonic() - begin
        return call

    for name in kept:
        setattr(_check.Check, name, measured(name))
    try:
        begin = time.monotonic()
        zorse.export(module, path, **more)
        return time.monotonic() - begin, parts
    finally:
        for name, function in kept.items():
            setattr(_check.Check, name, function)


def judged(results, label, without, whole, limit):
    print(f"{label}: {without:.1f} s, with the comparison {whole:.1f} s", flush=True)
    results.append(z.check(f"{label}: seconds of the comparison over the limit", (whole - without) / limit, 1.0))
    return f"{label} {without:.1f} s + {whole - without:.1f} s"


def small():
    import torch
    from modules.gpt import GPT, GPTConfig, initialise

    torch.manual_seed(0)
    return initialise(GPT(GPTConfig(vocabulary=64, context=16, layers=2, heads=2, width=32)))


def first(folder, trust):
    """Seconds of the first export of a process. PyTorch is already loaded, because the module is created with it."""
    words = f"import export_cost, sys; print(export_cost.timed(export_cost.small(), sys.argv[1], trust={trust}, sequence=16, vocabulary=64)[0])"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", words, os.path.join(folder, "first.onnx")], cwd=os.path.dirname(os.path.abspath(__file__)), stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split()[-1])


def least(rounds, measure):
    """The minimum seconds without the comparison, and with it, over alternating rounds."""
    times = {True: [], False: []}
    for _ in range(rounds):
        for trust in (True, False):
            times[trust].append(measure(trust))
    return min(times[True]), min(times[False])


def main():
    ensure_torch()
    import warnings

    warnings.filterwarnings("ignore")
    results, said = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.onnx")
        for label, measure in (("a small GPT, first export", lambda trust: first(folder, trust)),
                               ("later exports", lambda trust: timed(module, path, trust=trust, sequence=16, vocabulary=64)[0])):
            module = small()
            without, whole = least(4, measure)
            said.append(judged(results, label, without, whole, 0.5 * without))
        if "--quick" not in sys.argv:
            import transformers
            from zorse.torch_export import WithLoss

            module = WithLoss(transformers.GPT2LMHeadModel(transformers.GPT2Config()))
            parts = {}

            def measure(trust):
                seconds, found = timed(module, path, trust=trust, sequence=1024, vocabulary=50257)
                parts.update(found)
                return seconds

            said.append(judged(results, "GPT-2 124M", *least(1, measure), 10.0))
            print(f"GPT-2 124M: module's step {parts['begin']:.1f} s; file's step, compared, {parts['finish']:.1f} s")
    z.finish(results, "; ".join(said))


if __name__ == "__main__":
    main()
