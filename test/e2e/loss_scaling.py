"""Loss scaling in f16: overflows on one of several devices, random plans, resuming, output for the user, invalid
inputs.

    loss_scaling.py [SCHEDULES]     random schedules of overflows, default 100

overflow-runs (test/runtime) trains two bundles of one model with the same schedules of steps in which gradients or loss
are not finite on one device. Scales, skips and state must be those of one device and of GradScaler's rule, and a
skipped step changes no bit. Arithmetic is f64 with f16 rounding.
"""
import json
import os
import re
import sys
import tempfile

import numpy as np

import harness as z

MODEL = os.path.join(z.SMALL, "gpt.onnx")
TOKENS = os.path.join(z.SMALL, "gpt.bf16.tokens.bin")
TINY = os.path.join(z.SMALL, "gpt-tiny-dropout.onnx")
PLANS = {
    # the loss on a device without state; on the last stage; shared by all; on two of three
    "loss-without-state": (["a", "b", "c"], [(0, 3, 0, 8, "a"), (3, 5, 0, 8, "b"), (5, 8, 0, 4, "b"), (5, 8, 4, 8, "c")], {"state": {"groups": [{"group": "*", "owners": [{"device": "a", "fraction": 1}]}]}}),
    "stages": (["a", "b", "c"], [(0, 3, 0, 4, "a"), (0, 3, 4, 8, "a"), (3, 6, 0, 4, "b"), (3, 6, 4, 8, "b"), (6, 8, 0, 4, "c"), (6, 8, 4, 8, "c")], {}),
    "shares": (["a", "b", "c", "d"], [(0, 8, 0, 4, "a"), (0, 8, 4, 6, "b"), (0, 8, 6, 7, "c"), (0, 8, 7, 8, "d")], {}),
    "split": (["a", "b"], [(0, 4, 0, 4, "a"), (0, 4, 4, 8, "a"), (4, 8, 0, 4, "b"), (4, 8, 4, 8, "b")], {"split_backward": True}),
}


def bundle(folder, name, devices, plan=None, precision="f64:f16", model=MODEL, batch=8, sequence=32, training=z.ADAMW, extra=()):
    path = os.path.join(folder, name + ".zorse")
    z.compile(model, path, z.cluster(folder, devices), batch, sequence, plan, training, precision, extra=extra)
    return path


def schedules(folder, count):
    """Runs every plan with its share of the schedules."""
    data = f"{TOKENS}"
    rule = ("--loss-scale-window", 2)
    training = {"optimizer": "adamw", "lr": "1e-2", "max-grad-norm": "0.5"}
    one = bundle(folder, "one", ["a"], training=training, extra=rule)
    each = -(-count // len(PLANS))
    for n, (name, (devices, cells, more)) in enumerate(PLANS.items()):
        many = bundle(folder, name, devices, z.plan(folder, name, 8, devices, cells, **more), training=training, extra=rule)
        _, out, _ = z.call("overflow-runs", one, many, data, each, n * each, timeout=3600)
        print(f"{name}: {out.strip()}")


def f16_trains(folder):
    """Real f16: overflows in consecutive steps, because the initial scale is too high. The scale is printed, written to
    the metrics, and stored in snapshots."""
    results = []
    name = "f16"
    path = bundle(folder, name, ["a", "b"], z.plan(folder, name, 8, *PLANS["split"][:2]), "f16", extra=("--initial-loss-scale", 2.0 ** 40))
    metrics = os.path.join(folder, "metrics.jsonl")
    snapshots = os.path.join(folder, "snapshots")
    _, out, _ = z.call("zorse-run", path, "--data", TOKENS, "--max-steps", 40, "--metrics-file", metrics, "--save-weights", os.path.join(folder, "whole"))
    whole = [json.loads(line) for line in open(metrics)]
    skipped = [m["skipped"] for m in whole]
    first = skipped.index(False)
    rule = [2.0 ** 40]
    for overflow in skipped[:-1]:
        rule.append(rule[-1] / 2 if overflow else rule[-1])
    if first < 3 or sum(skipped) > first + 3 or [m["loss_scale"] for m in whole] != rule:
        raise z.Failure(f"overflows {skipped}, scales {[m['loss_scale'] for m in whole]}: expects halving from 2^40 until hardly anything overflows")
    if not re.search(rf"loss scale {2 ** 40:.0f} .*update skipped \(1 so far\)", out):
        raise z.Failure(f"the scale and the skipped update are not shown:\n{out[:600]}")
    print(f"f16 from a scale of 2^40: {first} steps in a row overflow and are skipped, then {sum(skipped) - first} of {40 - first}")
    # Stopped during the overflows and after them, and resumed under another plan.
    other = bundle(folder, "other", ["a"], precision="f16", extra=("--initial-loss-scale", 2.0 ** 40))
    for stop in (first - 1, first + 2):
        for tag, again in (("same", path), ("other", other)):
            kept = ["--data", TOKENS, "--metrics-file", f"{metrics}.{tag}{stop}", "--checkpoint-dir", f"{snapshots}-{tag}{stop}"]
            z.call("zorse-run", path, "--max-steps", stop, *kept)
            z.call("zorse-run", again, "--max-steps", 40, "--resume", "--save-weights", os.path.join(folder, tag), *kept)
            scales = [json.loads(line)["loss_scale"] for line in open(f"{metrics}.{tag}{stop}")]
            if scales != [m["loss_scale"] for m in whole][-len(scales):]:
                raise z.Failure(f"resumed after step {stop}, {tag} plan: scales {scales[:4]}, expects {[m['loss_scale'] for m in whole][stop:stop + 4]}")
            if tag == "same":
                a, b = (z.safetensors(os.path.join(folder, f)) for f in ("whole", "same"))
                if any(not np.array_equal(a[k], b[k]) for k in a):
                    raise z.Failure(f"resumed after step {stop}: other bits than the run that was not interrupted")
    print("resumed in the middle of overflows and behind them: the same bits, the same scales under another plan")
    # f16 training reaches the loss of f32 training.
    f32 = z.run(bundle(folder, "f32", ["a"], precision="f32"), TOKENS, 40)
    f16 = z.run(bundle(folder, "usual", ["a"], precision="f16"), TOKENS, 40)
    if any(m["skipped"] for m in f16):
        raise z.Failure("the usual first scale overflows")
    results.append(z.check("losses in f16 from those in f32", z.relative([m["loss"] for m in f16], [m["loss"] for m in f32]), 2e-3))
    return results


def small_gradients(folder):
    """The effect of the scale: without it gradients below 6e-8 are lost, more of them with larger batches. Compares
    first-step gradients with f32, with and without the scale."""
    results = []
    gradients = {}
    for name, precision, extra in (("exact", "f32", ()), ("scaled", "f16", ()), ("unscaled", "f16", ("--initial-loss-scale", 1))):
        gradients[name] = os.path.join(folder, name + ".g")
        z.run(bundle(folder, "small-" + name, ["a"], precision=precision, batch=256, extra=extra), TOKENS, 1, gradients=gradients[name])
    exact = z.safetensors(gradients["exact"])
    scaled, lost = (z.gradient_error(z.safetensors(gradients[name]), exact)[0] for name in ("scaled", "unscaled"))
    print(f"first-step gradients from those in f32: {scaled:.2g} with the usual scale, {lost:.2g} with none")
    results.append(z.check("gradients in f16 from those in f32", scaled, 0.002))
    if lost < 5 * scaled:
        raise z.Failure("a scale of 1 loses nothing: the test shows nothing")
    return results


def wrong_inputs(folder):
    for words, expected in ((("--precision", "f16", "--initial-loss-scale", 0), r"--initial-loss-scale: expects a power of two, at least 1"),
                            (("--precision", "f16", "--initial-loss-scale", 1000), r"--initial-loss-scale: expects a power of two, at least 1.*got 1000"),
                            (("--precision", "bf16", "--initial-loss-scale", 1024), r"--initial-loss-scale: .*bf16 needs no loss scale"),
                            (("--precision", "f32", "--loss-scale-window", 10), r"--loss-scale-window: .*f32 needs no loss scale")):
        code, out, err = z.call("zorse-compile", MODEL, "--cluster", z.cluster(folder, ["a"]), "--global-batch-size", 8, "--seq-length", 32, "-o", os.path.join(folder, "x.zorse"), *words, ok=False)
        if code != 1 or not re.search(expected, err):
            raise z.Failure(f"{words}: exit {code}, {err!r}; expects {expected}")


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory() as folder:
        wrong_inputs(folder)
        results = small_gradients(folder) + f16_trains(folder)
        schedules(folder, count)
    z.finish(results)


if __name__ == "__main__":
    main()
