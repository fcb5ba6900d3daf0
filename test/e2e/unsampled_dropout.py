"""Dropout of values without a sample axis (a parameter, a constant, ones for every sample), and masks that a graph
draws itself. Masks depend on the step and not on the plan.

    unsampled_dropout.py

Each case is trained for three steps in f64 on one device and under two plans with uneven cells: losses and parameters
are the same, and every step has another mask.
"""
import json
import os
import tempfile

import numpy as np

import harness as z
import onnx_file as onnx

KINDS = {"a parameter": "v", "a constant": "c", "ones for every sample": "ones", "stochastic depth by floor": "floored", "stochastic depth by comparison": "compared"}
BATCH, STEPS = 4, 3
PLANS = ([(0, None, 0, 1, "a"), (0, None, 1, 4, "b")], [(0, None, 0, 3, "b"), (0, None, 3, 4, "a")])


def masks(dropped):
    """Nodes that compute `kept`."""
    if dropped not in ("floored", "compared"):
        return [onnx.node("Dropout", [dropped, "", "mode"], ["kept"])]
    drawn = [onnx.constant("half", (), [0.5]), onnx.node("RandomUniformLike", ["zeros"], ["drawn"])]
    if dropped == "floored":
        return drawn + [onnx.node("Add", ["half", "drawn"], ["sum"]), onnx.node("Floor", ["sum"], ["mask"]), onnx.node("Div", ["mask", "half"], ["kept"])]
    return drawn + [onnx.node("Less", ["drawn", "half"], ["chosen"]), onnx.node("CastLike", ["chosen", "half"], ["mask"]), onnx.node("Div", ["mask", "half"], ["kept"])]


def model(dropped):
    nodes = [onnx.constant("mode", (), [1], onnx.BOOL), onnx.constant("c", (4,), [1.0, 2.0, 3.0, 4.0]), onnx.node("Shape", ["x"], ["shape"]),
             onnx.node("ConstantOfShape", ["shape"], ["zeros"]), onnx.node("Cos", ["zeros"], ["ones"]), onnx.node("Add", ["x", "v"], ["with_v"]),
             *masks(dropped), onnx.node("Mul", ["with_v", "kept"], ["h"])]
    return onnx.regression(nodes, more=[onnx.tensor("v", (4,), [1.0, 2.0, 3.0, 4.0])])


def main():
    results = []
    with tempfile.TemporaryDirectory() as folder:
        file, bundle, saved = (os.path.join(folder, name) for name in ("model.onnx", "model.zorse", "saved.safetensors"))
        for name, array in (("x", np.ones((BATCH * STEPS, 4))), ("y", np.zeros((BATCH * STEPS, 4)))):
            np.save(os.path.join(folder, name + ".npy"), array)
        for name, dropped in KINDS.items():
            with open(file, "wb") as f:
                f.write(model(dropped))

            def trained(devices, cells):
                plan = cells and z.plan(folder, "uneven", BATCH, devices, cells)
                z.compile(file, bundle, z.cluster(folder, devices), BATCH, 0, plan, {"optimizer": "sgd", "lr": "0.001", "max-grad-norm": "0"}, "f64", extra=("--train", "w,v"))
                metrics = z.run(bundle, f"x={folder}/x.npy,y={folder}/y.npy", STEPS, checkpoint=saved, extra=("--seed", "1"))
                return [m["loss"] for m in metrics], z.safetensors(saved)

            losses, parameters = trained(["a"], None)
            with open(os.path.join(bundle, "plan.json")) as f:
                units = max(cell["units"][1] for cell in json.load(f)["cells"])
            results.append(z.check(f"dropout of {name}: steps draw separate masks", int(len(set(losses)) < STEPS), 0))
            for k, cells in enumerate(PLANS):
                found, others = trained(["a", "b"], [(0, units, *rest) for _, _, *rest in cells])
                results.append(z.check(f"dropout of {name}, plan {k}: losses", z.relative(found, losses), 1e-12))
                results.append(z.check(f"dropout of {name}, plan {k}: parameters", max(float(np.abs(others[p] - v).max()) for p, v in parameters.items()), 1e-12))
    z.finish(results)


if __name__ == "__main__":
    main()
