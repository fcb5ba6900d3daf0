"""What the comparison of an export costs: seconds of zorse.export with it and without, and where they go (exit code 77 without PyTorch).

export_cost.py [--quick]      --quick: without GPT-2 124M
"""
import os
import sys
import tempfile
import time

import harness as z
from python_package_torch import ensure_torch

os.environ["ZORSE_BIN"] = z.BIN
sys.path.insert(0, os.path.join(z.ROOT, "python"))
sys.path.insert(0, os.path.join(z.ROOT, "models"))


def timed(module, path, **more):
    """Seconds of an export, and of the parts of its comparison."""
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


def compared(results, label, module, path, rounds, limit, **more):
    times = {True: [], False: []}
    for _ in range(rounds):
        for trust in (True, False):
            seconds, parts = timed(module, path, trust=trust, **more)
            times[trust].append(seconds)
    without, whole = (min(times[trust]) for trust in (True, False))
    print(f"{label}: {without:.1f} s, with the comparison {whole:.1f} s (module's step {parts['begin']:.2f} s; file's step, compared, {parts['finish']:.2f} s)", flush=True)
    results.append(z.check(f"{label}: seconds of the comparison over the limit", (whole - without) / limit(without), 1.0))
    return f"{label} {without:.1f} s + {whole - without:.1f} s"


def main():
    ensure_torch()
    import warnings

    warnings.filterwarnings("ignore")
    import torch
    from modules.gpt import GPT, GPTConfig, initialise

    results, said = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.onnx")
        torch.manual_seed(0)
        small = initialise(GPT(GPTConfig(vocabulary=64, context=16, layers=2, heads=2, width=32)))
        said.append(compared(results, "a small GPT", small, path, 3, lambda export: 0.5 * export, sequence=16, vocabulary=64))
        if "--quick" not in sys.argv:
            import transformers
            from zorse.torch_export import WithLoss

            large = WithLoss(transformers.GPT2LMHeadModel(transformers.GPT2Config()))
            said.append(compared(results, "GPT-2 124M", large, path, 1, lambda export: 10.0, sequence=1024, vocabulary=50257))
    z.finish(results, "; ".join(said))


if __name__ == "__main__":
    main()
