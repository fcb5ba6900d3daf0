"""Compares models other than language models, on four unequal devices, with PyTorch in double precision (references:
models/make_zoo.py).
"""
import json
import os
import tempfile

import harness as z


def main():
    zoo = os.path.join(z.SMALL, "zoo")
    with open(os.path.join(zoo, "reference.json")) as f:
        reference = json.load(f)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        four = z.cluster(folder, [("a", 1.5e6), ("b", 1e6), ("c", 1e6), ("d", 1e6)])  # slow enough that every device is used
        for name, model in reference["models"].items():
            bundle = os.path.join(folder, name + ".zorse")
            words = ["zorse-compile", os.path.join(zoo, name + ".onnx"), "--cluster", four, "--global-batch-size", reference["batch"], "--lr", "1e-2", "--precision", "f64",
                     "--quiet", "-o", bundle]
            z.call(*words)
            data = ",".join(f"{key}={os.path.join(zoo, f'{name}.{key}.npy')}" for key in model["inputs"])
            metrics = z.run(bundle, data, reference["steps"])
            results.append(z.check(f"{name}: loss over {reference['steps']} steps", z.relative([m["loss"] for m in metrics], model["loss"]), 1e-9))
    z.finish(results)


if __name__ == "__main__":
    main()
