"""Modules with operators that the importer decomposes, trained on CPUs and compared with PyTorch in double precision
(references: models/make_breadth.py), under a plan with several stages per module, and on an emulated GPU in single
precision compared with CPUs.

    breadth.py [--quick]     --quick: on one GPU only the first two modules
"""
import json
import os
import sys
import tempfile

import harness as z

STANDIN = os.path.join(os.path.dirname(z.BIN), "standin")
BREADTH = os.path.join(z.SMALL, "breadth")


def gpu(folder):
    path = os.path.join(folder, "gpu.yaml")
    with open(path, "w") as f:
        f.write("name: test\nnodes:\n  - name: here\n    devices:\n      - { name: g, kind: cuda, arch: emu, flops_per_second: 1e10, memory: 2GiB }\n")
    return path


def main():
    os.environ["LD_LIBRARY_PATH"] = STANDIN + ":" + os.environ.get("LD_LIBRARY_PATH", "")
    os.environ["ZORSE_EMULATOR_DEVICES"] = "1"
    with open(os.path.join(BREADTH, "reference.json")) as f:
        reference = json.load(f)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        clusters = {"four": z.cluster(folder, [("a", 1.5e6), ("b", 1e6), ("c", 1e6), ("d", 1e6)]), "one": z.cluster(folder, [("a", 1e10)]), "gpu": gpu(folder)}

        def losses(name, where, precision, steps):
            bundle = os.path.join(folder, f"{name}.{where}.{precision}.zorse")
            z.call("zorse-compile", os.path.join(BREADTH, name + ".onnx"), "--cluster", clusters[where], "--global-batch-size", reference["batch"], "--lr", "1e-2", "--precision",
                   precision, "--quiet", "-o", bundle)
            data = ",".join(f"{key}={os.path.join(BREADTH, f'{name}.{key}.npy')}" for key in reference["models"][name]["inputs"])
            return [m["loss"] for m in z.run(bundle, data, steps)]

        for number, (name, model) in enumerate(reference["models"].items()):
            found = losses(name, "four", "f64", reference["steps"])
            results.append(z.check(f"{name}: loss over {reference['steps']} steps", z.relative(found, model["loss"]), 1e-9))
            if number < 2 or "--quick" not in sys.argv:
                on_gpu = losses(name, "gpu", "f32", 4)
                results.append(z.check(f"{name}: loss over 4 steps on an emulated GPU", z.relative(on_gpu, losses(name, "one", "f32", 4)), 1e-5))
    z.finish(results)


if __name__ == "__main__":
    main()
