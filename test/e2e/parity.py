"""Compares one device with PyTorch: loss and gradient norm of 50 AdamW steps, first-step gradients (references:
models/make_small.py).
"""
import json
import os
import tempfile

import harness as z


def main():
    results = []
    with tempfile.TemporaryDirectory() as folder:
        one = z.cluster(folder, ["a"])
        for name in ("gpt", "llama"):
            base = os.path.join(z.SMALL, name)
            with open(base + ".reference.json") as f:
                reference = json.load(f)
            bundle, gradients, checkpoint = (os.path.join(folder, name + s) for s in (".zorse", ".g.safetensors", ".c.safetensors"))
            z.compile(base + ".onnx", bundle, one, reference["settings"]["rows"], reference["settings"]["sequence"])
            metrics = z.run(bundle, base + ".tokens.bin", 50, gradients=gradients, checkpoint=checkpoint)
            error, tensor = z.gradient_error(z.safetensors(gradients), z.safetensors(base + ".gradients.safetensors"))
            missing = len(z.safetensors(checkpoint)) == 0
            results += [z.check(f"{name}: loss over 50 steps", z.relative([m["loss"] for m in metrics], reference["loss"]), 1e-4),
                        z.check(f"{name}: gradient norm over 50 steps",
                                z.relative([m["grad_norm"] for m in metrics], reference["gradient_norm"]), 1e-4),
                        z.check(f"{name}: first-step gradients, worst '{tensor}'", error, 1e-5), not missing]
    z.finish(results)


if __name__ == "__main__":
    main()
