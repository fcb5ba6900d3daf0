"""Compares fifty steps of every optimizer, decay rule and schedule with torch.optim in double precision (references:
models/make_optimizers.py): on two devices that share the updates, and for every kind of optimizer states also in a run
that resumes from a checkpoint of step 25 on one device.
"""
import json
import math
import os
import re
import tempfile

import numpy as np

import harness as z

TOKENS = os.path.join(z.SMALL, "optimizers.tokens.bin")
MODEL_OF = {"muon": "deep", "adafactor": "large", "adam8bit": "large", "adamw8bit": "large"}  # as in models/make_optimizers.py
HIDDEN = ("wide.weight", "square.weight", "narrow.weight")  # of mlp-deep, which Muon updates
OF_STATES = ("optimizer", "momentum", "amsgrad", "centered", "ema-decay")  # options that decide about optimizer states


PLANS = {"on devices": {}, "on hosts": {"parameters": "host", "optimizer_states": "host"},
         "updated by hosts": {"parameters": "host", "optimizer_states": "host", "optimizer": "host"}}  #: residency by name


def divided(rows, residency):
    """A plan for mlp-large in which two devices own 0.6 and 0.4 of all parameters."""
    owners = [{"device": "a", "fraction": 0.6}, {"device": "b", "fraction": 0.4}]
    return {"global_batch_size": rows, "devices": ["a", "b"], "stages": [{"units": [0, 5], "devices": ["a", "b"], "micro_batch_size": 1}],
            "state": {"groups": [{"group": "*", "owners": owners}]}, "offload": [residency] if residency else []}


def words(options, folder):
    """Options of a case as words of zorse-compile."""
    line = []
    for key, value in options.items():
        if key == "lr-schedule-file":
            path = os.path.join(folder, "schedule.txt")
            with open(path, "w") as f:
                f.write(value)
            value = path
        for one in value if isinstance(value, list) else [value]:
            line += [f"--{key}"] if one is True else [f"--{key}={one}"]
    return line


def worst(path, expected):
    """The largest difference of parameters from their digests (make_optimizers.py)."""
    found, error = z.safetensors(path), 0.0
    for name, (norm, mixed) in expected.items():
        p = found[name].astype(np.float64).ravel()
        error = max(error, abs(np.linalg.norm(p) - norm) / norm, abs(p @ np.cos(np.arange(p.size)) - mixed) / norm)
    return error


def train(folder, bundle, case, steps, extra=()):
    """Trains; returns the largest difference from the reference."""
    weights, averages = os.path.join(folder, "c.safetensors"), os.path.join(folder, "e.safetensors")
    more = [f"--save-ema={averages}"] if "averages" in case else []
    metrics = z.run(bundle, TOKENS, steps, checkpoint=weights, extra=[*more, *extra])
    first = metrics[0]["step"] - 1
    errors = [z.relative([m[key] + 1 for m in metrics], [v + 1 for v in case[key][first:steps]]) for key in ("loss", "grad_norm", "lr")]
    if steps == len(case["loss"]):
        errors.append(worst(weights, case["parameters"]))
        errors += [worst(averages, case["averages"])] if more else []
    return max(errors)


def state_bytes(bundle):
    """Bytes of optimizer states in the programs of a bundle."""
    text = "".join(z.call("zorse-inspect", bundle, f"--program={device}")[1] for device in ("a", "b"))
    return sum(int(size) for size in re.findall(r"exec\.state moments .* at \d+:\d+\+(\d+)", text))


def entries_of(name, shape, options):
    """Numbers in every state of a parameter, with bytes of each (f64)."""
    n, kind = math.prod(shape), options["optimizer"]
    own = {"sgd": "momentum" in options, "lion": 1, "adagrad": 1, "rmsprop": 1 + bool(options.get("centered")) + ("momentum" in options)}
    states = [(n, 8)] * int(own.get(kind, 2 + bool(options.get("amsgrad"))))
    if kind == "muon" and name in HIDDEN and not any(g.startswith(name + ":optimizer=adamw") for g in options.get("param-group", [])) or name + ":optimizer=muon" in options.get("param-group", []):
        states = [(n, 8)]
    elif kind == "adafactor":
        states = [(n // shape[-1], 8), (n // shape[-2], 8)] if len(shape) > 1 else [(n, 8)]
    elif "8bit" in kind and n >= 4096 and n % 256 == 0:
        states = [(n, 1), (n // 256, 8)] * 2
    return states + [(n, 8)] * ("ema-decay" in options)


def check_state(text, options, bundle, weights):
    """The bytes of optimizer states that the programs keep are those of the optimizer. Every state of a parameter begins at a multiple of 512 bytes."""
    expected = sum(-(-n * size // 512) * 512 for name, p in z.safetensors(weights).items() for n, size in entries_of(name, p.shape, options))
    found, elements = state_bytes(bundle), sum(p.size for p in z.safetensors(weights).values())
    return z.check(f"{text}: {found} bytes of states, {found / elements:.2f} per parameter", abs(found - expected), 0)


def main():
    with open(os.path.join(z.SMALL, "optimizers.reference.json")) as f:
        reference = json.load(f)
    results, seen, steps = [], set(), reference["steps"]
    with tempfile.TemporaryDirectory() as folder:
        two, one = z.cluster(folder, [("a", 3e9), ("b", 1e9)]), z.cluster(folder, ["a"])
        bundle, other = os.path.join(folder, "b.zorse"), os.path.join(folder, "o.zorse")
        for number, case in enumerate(reference["cases"]):
            options = case["options"]
            text, line = " ".join(f"{k}={v}".strip().replace("\n", "; ") for k, v in options.items()), words(options, folder)

            def compile(to, cluster, more=()):
                model = os.path.join(z.SMALL, f"mlp-{MODEL_OF.get(options['optimizer'], 'tiny')}.onnx")
                z.compile(model, to, cluster, reference["rows"], reference["sequence"], training={}, precision="f64", extra=[*line, *more])

            compile(bundle, two)
            results.append(z.check(f"{text}: losses, norms, rates and trained parameters", train(folder, bundle, case, steps), 1e-9))
            for name, residency in PLANS.items() if MODEL_OF.get(options["optimizer"]) == "large" else ():
                with open(plan := os.path.join(folder, "plan.json"), "w") as f:
                    json.dump(divided(reference["rows"], residency), f)
                compile(other, two, ["--plan", plan])
                results.append(z.check(f"{text}: divided states, {name}", train(folder, other, case, steps), 1e-9))
            kind = tuple(bool(options.get(key)) if key != "optimizer" else options[key] for key in OF_STATES)
            if kind in seen:
                continue
            seen.add(kind)
            results.append(check_state(text, options, bundle, os.path.join(folder, "c.safetensors")))
            compile(other, one)
            checkpoints = [f"--checkpoint-dir={folder}/{number}", "--save-interval=25"]
            train(folder, other, case, steps // 2, checkpoints)
            error = train(folder, bundle, case, steps, [*checkpoints, "--resume"])
            results.append(z.check(f"{text}: step {steps // 2} on one device, then on two", error, 1e-9))
    z.finish(results)


if __name__ == "__main__":
    main()
