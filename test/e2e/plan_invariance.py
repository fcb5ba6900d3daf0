"""Compares every plan with one device: first-step gradients, loss and gradient norm of 50 AdamW steps with clipping and
of 20 SGD steps without; in f64 and in f64 with bf16 rounding also every gradient and every parameter after 3 steps.

    plan_invariance.py [--quick]     --quick: 10 steps instead of 50, GPT only
"""
import os
import sys
import tempfile

import numpy as np

import harness as z

BATCH, LENGTH, UNITS = 8, 32, 8  # embedding, 3 x (attention, mlp), head with the loss
NODES = {"tensor-parallel-nodes": [["a", "b"], ["c", "d"]]}  # of plans whose devices are not in one node


def plans():
    """name -> (devices, cells, more)"""
    u, b = UNITS, BATCH
    out = {}
    out["pipeline"] = (["a", "b", "c"], [(0, 3, 0, 4, "a"), (0, 3, 4, 8, "a"), (3, 5, 0, 4, "b"), (3, 5, 4, 8, "b"), (5, u, 0, 4, "c"), (5, u, 4, 8, "c")], {})
    out["stages-1-2-3"] = (list("abcdef"),
                           [(0, 2, 0, 4, "a"), (0, 2, 4, 8, "a"), (2, 5, 0, 5, "b"), (2, 5, 5, 8, "c"), (5, u, 0, 3, "d"), (5, u, 3, 6, "e"), (5, u, 6, 8, "f")],
                           {"schedule": "1f1b"})
    out["shares-5-2-1"] = (["a", "b", "c"], [(0, u, 0, 5, "a"), (0, u, 5, 7, "b"), (0, u, 7, 8, "c")], {})
    out["two-pipelines"] = (list("abcde"), [(0, 4, 0, 5, "a"), (4, u, 0, 5, "b"), (0, 3, 5, 8, "c"), (3, 6, 5, 8, "d"), (6, u, 5, 8, "e")], {})
    out["uneven-state"] = (["a", "b", "idle"], [(0, u, 0, 5, "a"), (0, u, 5, 8, "b")],
                           {"state": {"groups": [{"group": "*", "owners": [{"device": "a", "fraction": 0}, {"device": "b", "fraction": 0.3}, {"device": "idle", "fraction": 0.7}]}]}})
    out["tied-first-last"] = (["a", "b", "c"], [(0, 3, s, s + 2, "a") for s in range(0, 8, 2)] + [(3, 6, s, s + 4, "b") for s in (0, 4)] +
                              [(6, u, s, s + 1, "c") for s in range(8)], {"schedule": "1f1b"})
    out["disjoint-chunks"] = (["a", "b"], [(0, 2, s, s + 4, "a") for s in (0, 4)] + [(2, 4, s, s + 4, "b") for s in (0, 4)] +
                              [(4, 6, s, s + 4, "a") for s in (0, 4)] + [(6, u, s, s + 4, "b") for s in (0, 4)], {"schedule": "gpipe"})
    out["interleaved"] = (*out["disjoint-chunks"][:2], {"schedule": "interleaved"})
    out["folded-split"] = (["a", "b"], [(lo, hi, s, s + 2, d) for lo, hi, d in ((0, 2, "a"), (2, 4, "b"), (4, 6, "b"), (6, u, "a")) for s in range(0, 8, 2)],
                           {"schedule": {"name": "wave", "in_flight_factor": 1.5}, "split_backward": True})
    out["pipeline-split"] = (*out["pipeline"][:2], {"schedule": "1f1b", "split_backward": True})
    out["stages-1-2-3-split"] = (*out["stages-1-2-3"][:2], {"schedule": "gpipe", "split_backward": True})
    group = {"groups": [{"name": "g", "devices": ["a", "b"]}]}
    out["tensor-parallel"] = (["a", "b"], [(0, u, s, s + 4, "g") for s in (0, 4)], group)
    uneven = {"groups": [{"name": "g", "devices": ["a", "b"], "shares": [2, 1]}]}
    out["tensor-parallel-2-1"] = (*out["tensor-parallel"][:2], uneven)
    out["tensor-parallel-recompute"] = (*out["tensor-parallel"][:2], {**uneven, "activations": "recompute"})
    out["tensor-parallel-offload"] = (*out["tensor-parallel"][:2], {**uneven, "activations": "offload", "offload": [{"optimizer_states": "host"}, {"reshard_after_forward": True}]})
    out["tensor-parallel-stage"] = (["a", "b", "c"], [(0, 3, s, s + 2, "c") for s in range(0, 8, 2)] + [(3, u, s, s + 2, "g") for s in range(0, 8, 2)],
                                    {**group, "schedule": "1f1b"})
    out["tensor-parallel-stage-split"] = (*out["tensor-parallel-stage"][:2], {**group, "schedule": "1f1b", "split_backward": True})
    two = {"groups": [*uneven["groups"], {"name": "h", "devices": ["c", "d"]}]}
    out["tensor-parallel-nodes"] = (list("abcd"), [(0, 3, s, s + 2, "g") for s in range(0, 8, 2)] + [(3, u, s, s + 4, "h") for s in (0, 4)],
                                    {**two, "schedule": "1f1b"})
    out["tensor-parallel-replicas"] = (list("abcd"), [(0, u, 0, 4, "g"), (0, u, 4, 8, "h")],
                                       {"groups": [*group["groups"], {"name": "h", "devices": ["c", "d"]}]})
    # Replicas that divide the units at different places; h is a group of one device.
    degrees = {"groups": [{"name": "f", "devices": list("wxyz")}, *uneven["groups"], {"name": "h", "devices": ["c"]}]}
    out["tensor-parallel-degrees-2-1"] = (list("abc"), [(0, u, 0, 4, "g"), (0, u, 4, 8, "h")], {"groups": degrees["groups"][1:]})
    out["tensor-parallel-degrees-4-2-1"] = (list("abcwxyz"), [(0, u, 0, 4, "f"), (0, u, 4, 6, "g"), (0, 3, 6, 8, "h"), (3, u, 6, 8, "h")], degrees)
    out["tensor-parallel-degrees-reshard"] = (*out["tensor-parallel-degrees-4-2-1"][:2], {**degrees, "activations": "recompute", "offload": [{"reshard_after_forward": True}]})
    out["tensor-parallel-degrees-host"] = (*out["tensor-parallel-degrees-2-1"][:2], {"groups": degrees["groups"][1:], "offload": [{"optimizer_states": "host", "parameters": "host", "optimizer": "host"}]})
    return out


def trained(folder, model, data, name, devices, cells, more, steps, training, precision):
    tag = f"{name}-{training['optimizer']}-{precision}"
    bundle, gradients, checkpoint = (os.path.join(folder, tag + s) for s in (".zorse", ".g", ".c"))
    plan_file = z.plan(folder, tag, BATCH, devices, cells, **more) if cells else None
    z.compile(model, bundle, z.cluster(folder, devices, NODES.get(name)), BATCH, LENGTH, plan_file, training, precision)
    metrics = z.run(bundle, data, steps, gradients=gradients, checkpoint=checkpoint)
    return [m["loss"] for m in metrics], [m["grad_norm"] for m in metrics], z.safetensors(gradients), z.safetensors(checkpoint)


def main():
    quick = "--quick" in sys.argv
    results = []
    worst = {}
    with tempfile.TemporaryDirectory() as folder:
        for model in ("gpt",) if quick else ("gpt", "llama"):
            path, data = os.path.join(z.SMALL, model + ".onnx"), os.path.join(z.SMALL, model + ".tokens.bin")
            for training, steps, precision, limit in ((z.ADAMW, 10 if quick else 50, "f32", 1e-5), (z.SGD, 5 if quick else 20, "f32", 1e-5), (z.ADAMW, 3, "f64", 1e-9), (z.ADAMW, 3, "f64:bf16", 1e-9)):
                whole = (0, UNITS, 0, BATCH, "a")
                loss, norm, gradient, state = trained(folder, model=path, data=data, name="one", devices=["a"], cells=[whole], more={}, steps=steps,
                                                      training=training, precision=precision)
                for name, (devices, cells, more) in plans().items():
                    l, n, g, s = trained(folder, path, data, name, devices, cells, more, steps, training, precision)
                    label = f"{model} {precision} {training['optimizer']} {name}"
                    results.append(z.check(f"{label}: loss", z.relative(l, loss), limit))
                    if training is z.ADAMW:
                        results.append(z.check(f"{label}: gradient norm", z.relative(n, norm), limit))
                    error, tensor = z.gradient_error(g, gradient)
                    results.append(z.check(f"{label}: first-step gradients ('{tensor}')", error, limit) and set(g) == set(gradient))
                    if precision.startswith("f64"):
                        distance = max(float(np.max(np.abs(s[k] - state[k]))) for k in state)
                        results.append(z.check(f"{label}: parameters after {steps} steps", distance, limit))
    z.finish(results)


if __name__ == "__main__":
    main()
