"""Two builds give identical results for the same input. Used to check refactorings.

    same_programs.py OTHER_BIN [--random N]     OTHER_BIN: the folder with
                                                zorse-compile and zorse-plan of the other build

Compares byte by byte: for every model under models/small, the printed functions of its units, with all parts of
backwards; for GPT and LLaMA under the plans of plan_invariance.py, and for N random plans of a tiny GPT, the programs,
summary and functions. Kernel symbols are hashes of machine code and may differ; they count as equal.
"""
import glob
import os
import re
import sys
import tempfile

import harness as z
import plan_invariance
from random_tilings import LENGTH, MODEL, TRAININGS

SYMBOL = re.compile(rb"_[0-9a-f]{24}")


def of(folder, action):
    """The result of `action` with the tools of `folder`."""
    mine, z.BIN = z.BIN, folder
    try:
        return action()
    finally:
        z.BIN = mine


def functions(model):
    """Uses the first sequence length that the file accepts."""
    for length in (["--seq-length", 32], ["--seq-length", 8], []):
        code, text, _ = z.call("zorse-compile", model, "--global-batch-size", 8, *length, "--compile-to=backward", "--emit=units", "--quiet", ok=not length)
        if code == 0:
            return text


def files(bundle):
    """The bytes that two builds must agree on, by name."""
    out = {}
    for path in [os.path.join(bundle, name) for name in ("summary.pb", "functions.pb", "plan.json")] + sorted(glob.glob(os.path.join(bundle, "programs", "*.pb"))):
        with open(path, "rb") as f:
            out[os.path.relpath(path, bundle)] = SYMBOL.sub(b"_", f.read())
    return out


def plans(folder, count):
    """(name, model, batch, sequence, devices, plan file, training)"""
    for name in ("gpt", "llama"):
        for title, (devices, cells, more) in plan_invariance.plans().items():
            plan = z.plan(folder, f"{name}-{title}", plan_invariance.BATCH, devices, cells, **more)
            yield f"{name}, {title}", os.path.join(z.SMALL, name + ".onnx"), plan_invariance.BATCH, plan_invariance.LENGTH, devices, plan, z.ADAMW
    if count:
        one = os.path.join(folder, "one.zorse")
        z.compile(MODEL, one, z.cluster(folder, ["d0"]), 8, LENGTH)
    for seed in range(count):
        batch, devices, plan = 3 + seed % 11, [f"d{i}" for i in range(2 + seed % 5)], os.path.join(folder, f"random-{seed}.plan.json")
        z.call("random-plan", os.path.join(one, "summary.pb"), len(devices), batch, seed, plan)
        yield f"random plan {seed}", MODEL, batch, LENGTH, devices, plan, TRAININGS[seed % 4]


def main():
    other = sys.argv[1]
    count = int(sys.argv[sys.argv.index("--random") + 1]) if "--random" in sys.argv else 20
    results = []
    for model in sorted(glob.glob(os.path.join(z.SMALL, "**", "*.onnx"), recursive=True)):
        text, expected = functions(model), of(other, lambda: functions(model))
        results.append(z.check(f"{os.path.relpath(model, z.SMALL)}: {text.count('func.func')} functions", float(text != expected or "func.func" not in text), 0))
    with tempfile.TemporaryDirectory() as folder:
        for name, model, batch, sequence, devices, plan, training in plans(folder, count):
            made = []
            for tools in (z.BIN, other):
                bundle = os.path.join(folder, "bundle.zorse")
                of(tools, lambda: z.compile(model, bundle, z.cluster(folder, devices), batch, sequence, plan, training))
                made.append(files(bundle))
            different = sorted(f for f in made[0].keys() | made[1].keys() if made[0].get(f) != made[1].get(f))
            results.append(z.check(f"{name}: {len(made[0])} files, different: {', '.join(different) or 'none'}", float(bool(different)), 0))
    z.finish(results)


if __name__ == "__main__":
    main()
