"""The save policy of the forward, and a backward in one or two tasks, change no rounding: first-step gradients and
parameters after 5 steps are bit-identical.

    same_roundings.py [--quick]     --quick: GPT only

In f64:bf16, f64:f16 and bf16, for every save policy (--recompute), each with a backward in one part and in two. A rounding
that recomputation or a split omits or duplicates would change results by 1e-3. In bf16, sums of a kernel that
recomputes a value may be contracted differently: gradients may differ by 5e-7 there, and so may the losses, which are
reported in f64.
"""
import os
import sys
import tempfile

import numpy as np

import harness as z


def main():
    results = []
    models = ("gpt",) if "--quick" in sys.argv else ("gpt", "llama", "gpt-tiny-dropout")
    for name in models:
        model = os.path.join(z.SMALL, name + ".onnx")
        batch, length, units = (8, 8, None) if "tiny" in name else (8, 32, 8)
        for precision in ("f64:bf16", "f64:f16", "bf16"):
            with tempfile.TemporaryDirectory() as folder:
                if "tiny" in name:
                    rng = np.random.default_rng(0)
                    paths = [os.path.join(folder, kind + ".npy") for kind in ("ids", "labels")]
                    for path in paths:
                        np.save(path, rng.integers(0, 32, (40, length)).astype(np.int64))
                    data = f"input_ids={paths[0]},labels={paths[1]}"
                else:
                    data = os.path.join(z.SMALL, name + ".bf16.tokens.bin")
                seen = {}
                for save in ("min-cut", "none", "full"):
                    for split in (False, True):
                        tag = os.path.join(folder, f"{save}-{split}")
                        cells = [(0, units or unit_count(folder, model, batch, length), a, b, "a") for a, b in ((0, 3), (3, 8))]
                        plan = z.plan(folder, f"p{save}{split}", batch, ["a"], cells, **({"split_backward": True} if split else {}))
                        z.compile(model, tag + ".zorse", z.cluster(folder, ["a"]), batch, length, plan, {"optimizer": "adamw", "lr": "1e-3"}, precision, extra=("--recompute", save))
                        metrics = z.run(tag + ".zorse", data, 5, gradients=tag + ".g", checkpoint=tag + ".c", extra=("--seed", 3))
                        seen[(save, split)] = ([m["loss"] for m in metrics], z.safetensors(tag + ".g"), z.safetensors(tag + ".c"))
                base = seen[("min-cut", False)]
                for key, found in seen.items():
                    different = [k for part in (1, 2) for k in base[part] if not np.array_equal(base[part][k], found[part][k])]
                    worst = z.gradient_error(found[1], base[1])[0]
                    good = z.relative(found[0], base[0]) < 1e-12 and not different if precision != "bf16" else worst < 5e-7
                    print(f"{'ok  ' if good else 'FAIL'} {name}, {precision}, save {key[0]}{', split backward' if key[1] else ''}: "
                          + ("the same bits" if not different else f"{len(different)} tensors differ, gradients by {worst:.2g}"), flush=True)
                    results.append(good)
    z.finish(results, "every save policy, with one backward or two: the same bits")


def unit_count(folder, model, batch, length):
    import json
    path = os.path.join(folder, "units.json")
    if not os.path.exists(path):
        _, out, _ = z.call("zorse-compile", model, "--cluster", z.cluster(folder, ["a"]), "--global-batch-size", batch, "--seq-length", length, "--quiet", "--emit", "plan")
        with open(path, "w") as f:
            f.write(out)
    with open(path) as f:
        return max(cell["units"][1] for cell in json.load(f)["cells"])


if __name__ == "__main__":
    main()
