"""Compares ten steps of every optimizer, decay rule and schedule with torch.optim in double precision (references:
models/make_optimizers.py).
"""
import json
import os
import tempfile

import numpy as np

import harness as z


def main():
    with open(os.path.join(z.SMALL, "optimizers.reference.json")) as f:
        reference = json.load(f)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        two = z.cluster(folder, [("a", 3e9), ("b", 1e9)])  # updates are sharded over both devices
        bundle, checkpoint = os.path.join(folder, "b.zorse"), os.path.join(folder, "c.safetensors")
        for case in reference["cases"]:
            options = case["options"]
            training = {k: v for k, v in options.items() if v is not True}
            flags = [f"--{k}" for k, v in options.items() if v is True]
            z.compile(os.path.join(z.SMALL, "mlp-tiny.onnx"), bundle, two, reference["rows"], reference["sequence"], training=training, precision="f64",
                      extra=flags)
            metrics = z.run(bundle, os.path.join(z.SMALL, "mlp-tiny.tokens.bin"), reference["steps"], checkpoint=checkpoint)
            found = z.safetensors(checkpoint)
            worst = 0.0
            for name, (norm, mixed) in case["parameters"].items():
                p = found[name].astype(np.float64).ravel()
                worst = max(worst, abs(np.linalg.norm(p) - norm) / norm, abs(p @ np.cos(np.arange(p.size)) - mixed) / norm)
            errors = {key: z.relative([m[key] + 1 for m in metrics], [v + 1 for v in case[key]]) for key in ("loss", "grad_norm", "lr")}
            text = " ".join(f"{k}={v}" for k, v in options.items())
            results.append(z.check(f"{text}: losses, norms, rates and trained parameters", max(worst, *errors.values()), 1e-9))
    z.finish(results)


if __name__ == "__main__":
    main()
