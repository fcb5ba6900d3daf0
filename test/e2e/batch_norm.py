"""Batch norm with statistics of groups of samples: losses, running statistics and evaluation match PyTorch under every
plan (references: models/make_batch_norm.py). On one device a group is the batch; under data parallelism a group is
the samples of a device. Also checks which uses are refused.

ONNX files store epsilon and momentum in f32, PyTorch computes them in f64. If a group has few samples, running
statistics therefore differ in the sixth digit.
"""
import json
import os
import sys
import tempfile

import numpy as np

import harness as z

FOLDER = os.path.join(z.SMALL, "batch-norm")
MODEL, DATA = os.path.join(FOLDER, "model.onnx"), ",".join(f"{key}={os.path.join(FOLDER, key + '.npy')}" for key in ("pixels", "label"))


def refused(results, what, words, *expected):
    code, out, err = z.call(*words, ok=False)
    good = code == 1 and all(text in out + err for text in expected)
    results.append(good)
    print(f"{'ok  ' if good else 'FAIL'} {what}" + ("" if good else f": exit {code}, {(out + err)[-400:]}"), flush=True)


def main():
    with open(os.path.join(FOLDER, "reference.json")) as f:
        reference = json.load(f)
    batch, steps, results = reference["batch"], reference["steps"], []
    with tempfile.TemporaryDirectory() as folder:
        one, two = z.cluster(folder, ["d0"]), z.cluster(folder, ["d0", "d1"])

        def compiling(group, where, plan, bundle, *more):
            return ["zorse-compile", MODEL, "--cluster", where, "--global-batch-size", batch, "--lr", "1e-2", "--quiet", "-o", bundle, *([f"--group-rows={group}"] if group else []),
                    *(["--plan", plan] if plan else []), *more]

        for group, expected in reference["groups"].items():
            group, first = int(group), os.path.join(folder, f"{group}.zorse")
            plans = {"one device": None}
            z.call(*compiling(group, one, None, first, "--precision", "f64"))
            for seed in range(3 if group < batch else 1):
                plans[f"random plan {seed}"] = os.path.join(folder, f"{group}.{seed}.json")
                z.call("random-plan", os.path.join(first, "summary.pb"), 2, batch, seed, plans[f"random plan {seed}"])
            if group < batch:  # each device computes the whole model for its own samples
                with open(plans["random plan 0"]) as f:
                    last = max(cell["units"][1] for cell in json.load(f)["cells"])
                z.plan(folder, f"{group}.halves", batch, ["d0", "d1"], [(0, last, 0, batch // 2, "d0"), (0, last, batch // 2, batch, "d1")])
                plans["data parallel"] = os.path.join(folder, f"{group}.halves.plan.json")
            for name, plan in plans.items():
                bundle, saved = os.path.join(folder, "tried.zorse"), os.path.join(folder, "saved.safetensors")
                z.call(*compiling(group, two if plan else one, plan, bundle, "--precision", "f64"))
                with tempfile.NamedTemporaryFile(suffix=".jsonl") as metrics:
                    z.call("zorse-run", bundle, "--data", DATA, "--max-steps", steps, "--eval-data", DATA, "--eval-interval", steps, "--metrics-file", metrics.name, "--save-weights", saved)
                    with open(metrics.name) as f:
                        lines = [json.loads(line) for line in f]
                losses = [m["loss"] for m in lines if "loss" in m]
                evaluated = [m["eval_loss"] for m in lines if "eval_loss" in m]
                tag = f"groups of {group}, {name}"
                results.append(z.check(f"{tag}: losses", z.relative(losses, expected["loss"]), 5e-7))
                results.append(z.check(f"{tag}: evaluation", z.relative(evaluated[-1:], [expected["evaluation"]]), 1e-7))
                found = z.safetensors(saved)
                results.append(z.check(f"{tag}: running statistics", max(float(np.max(np.abs(found[n] - np.asarray(v)) / np.maximum(np.abs(v), 1e-3))) for n, v in expected["running"].items()), 2e-5))
        z.call(*compiling(4, two, None, os.path.join(folder, "planned.zorse")))
        with open(os.path.join(folder, "planned.zorse", "plan.json")) as f:
            planned = json.load(f)
        good = planned["global_batch_size"] == batch and all(s % 4 == 0 for cell in planned["cells"] for s in cell["samples"])
        results.append(good)
        print(f"{'ok  ' if good else 'FAIL'} a plan that was searched has cells of whole groups", flush=True)
        z.plan(folder, "torn", batch, ["d0", "d1"], [(0, 2, 0, 6, "d0"), (0, 2, 6, batch, "d1")])
        bundle = os.path.join(folder, "none.zorse")
        refused(results, "a cell that begins inside a group is refused", compiling(4, two, os.path.join(folder, "torn.plan.json"), bundle), "cells[0].samples[1]", "multiple of 4", "--group-rows", "got 6")
        refused(results, "a batch of no whole groups is refused", compiling(3, one, None, bundle), "--global-batch-size: expects a multiple of --group-rows, 3, got 8")
        words = [word for word in compiling(0, one, None, bundle) if word != "--quiet"]
        code, out, err = z.call(*words)
        with open(os.path.join(bundle, "plan.json")) as f:
            whole = json.load(f).get("group_rows") == batch
        good = whole and f"all {batch} samples of a step are one group, because batch norms take their statistics over them" in out + err
        results.append(good)
        print(f"{'ok  ' if good else 'FAIL'} without the option all samples of a step are one group, which a note says")
        planned = os.path.join(folder, "planned.json")
        z.call("zorse-plan", MODEL, "--cluster", two, "--global-batch-size", batch, "-o", planned)
        with open(planned) as f:
            good = json.load(f).get("group_rows") == batch
        results.append(good)
        print(f"{'ok  ' if good else 'FAIL'} zorse-plan takes the same group")
        code, out, err = z.call(*words, "--group-rows=0")
        good = "--group-rows=G takes the statistics of groups of G samples" in out + err
        results.append(good)
        print(f"{'ok  ' if good else 'FAIL'} with 0 running statistics are used, and a warning names the option")
    z.finish(results)


if __name__ == "__main__":
    main()
