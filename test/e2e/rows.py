"""Samples are independent, and the number of rows is free. Changing sample j leaves every other sample's loss
bit-identical. Exports with a fixed batch of 1, of 2 and of the number of heads train with batch 7 over cells of 4, 2
and 1 rows, with the losses of the dynamic export.
"""
import json
import os
import tempfile

import numpy as np

import harness as z

LENGTH = 32


def per_sample(bundle, data, folder, name):
    path = os.path.join(folder, name + ".json")
    z.run(bundle, data, 1, extra=("--dump-losses", path))
    with open(path) as f:
        return json.load(f)


def main():
    results = []
    with tempfile.TemporaryDirectory() as folder:
        cells = [(0, 8, 0, 4, "a"), (0, 8, 4, 6, "b"), (0, 8, 6, 7, "c")]
        cluster, plan = z.cluster(folder, ["a", "b", "c"]), z.plan(folder, "seven", 7, ["a", "b", "c"], cells)
        for model in ("gpt", "llama"):
            data = os.path.join(z.SMALL, model + ".tokens.bin")
            bundle = os.path.join(folder, model + ".zorse")
            z.compile(os.path.join(z.SMALL, model + ".onnx"), bundle, cluster, 7, LENGTH, plan)
            ids = np.fromfile(data, np.uint16)[:7 * LENGTH + 1]
            before = per_sample(bundle, data, folder, "before")
            for j in range(7):
                changed = ids.copy()
                changed[j * LENGTH + 5:(j + 1) * LENGTH - 5] = (changed[j * LENGTH + 5:(j + 1) * LENGTH - 5] * 31 + 7) % 256
                path = os.path.join(folder, "changed.bin")
                changed.tofile(path)
                after = per_sample(bundle, path, folder, "after")
                same = [np.array_equal(np.asarray(before)[..., i], np.asarray(after)[..., i]) for i in range(7)]
                good = all(s == (i != j) for i, s in enumerate(same))
                results.append(good)
                if not good:
                    print(f"FAIL {model}: changing sample {j} changed samples {[i for i, s in enumerate(same) if not s]}")
            print(f"ok   {model}: losses of the other samples are bit-equal" if all(results) else f"FAIL {model}")
            expected = [m["loss"] for m in z.run(bundle, data, 10)]
            for rows in (1, 2, 4):
                fixed = os.path.join(z.SMALL, f"{model}-fixed-{rows}.onnx")
                bundle_fixed = os.path.join(folder, f"{model}-{rows}.zorse")
                z.compile(fixed, bundle_fixed, cluster, 7, LENGTH, plan)
                found = [m["loss"] for m in z.run(bundle_fixed, data, 10)]
                results.append(z.check(f"{model} exported with {rows} rows, trained with 7: loss", z.relative(found, expected), 1e-5))
    z.finish(results)


if __name__ == "__main__":
    main()
