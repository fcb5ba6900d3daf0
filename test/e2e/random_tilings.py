"""Random valid plans train like one device: tilings of a tiny GPT, and of models other than language models, in f64.
Every gradient, every loss and every parameter after 3 steps agree to 1e-9.

    random_tilings.py [COUNT] [FIRST SEED] [PRECISION] [--groups]     default 200 from 0

--groups: in place of every device, one or two devices divide its cells (tensor parallelism), in equal parts or 2:1, equally or differently in every place.

PRECISION is f64, or f64:bf16 or f64:f16, which round to low precision in f64 arithmetic. By default every third plan is
in f64:bf16 and the others are in f64.

Dropout is on, the number of ignored labels differs between samples, and all labels of the first sample are ignored.
Tilings have pinwheels, one-row cells, prime batches and idle devices. In every four plans, one trains with AdamW and
clipping, one with AdamW, one with SGD and momentum, one with SGD and clipping. The embedding is always tied. Every
second plan splits the backward: if it lists an order, W is anywhere after its B.

valid-plans (test/mutation) tests that the verifier accepts random plans of random models, and the result of its
interpreter.
"""
import json
import os
import random
import sys
import tempfile
import time

import numpy as np

import harness as z

MODEL = os.path.join(z.SMALL, "gpt-tiny-dropout.onnx")
LENGTH, VOCABULARY, STEPS = 8, 32, 3
BATCHES = (1, 2, 3, 5, 7, 8, 11, 13)
TRAININGS = ({"optimizer": "adamw", "lr": "1e-2", "max-grad-norm": "0.5"}, {"optimizer": "adamw", "lr": "1e-2", "max-grad-norm": "0"},
             {"optimizer": "sgd", "lr": "0.1", "momentum": "0.9"}, {"optimizer": "sgd", "lr": "0.1", "max-grad-norm": "0.3"}, {"optimizer": "muon", "lr": "1e-2"},
             {"optimizer": "adafactor", "lr": "1e-2"})  # the last two: not in groups
LIMIT = 1e-9


def make_data(folder, batch):
    rng = np.random.default_rng(batch)
    ids = rng.integers(0, VOCABULARY, (STEPS * batch, LENGTH)).astype(np.int64)
    labels = rng.integers(0, VOCABULARY, ids.shape).astype(np.int64)
    labels[rng.random(ids.shape) < rng.random((len(ids), 1)) * 0.8] = -100
    if batch > 1:
        labels[::batch] = -100
    paths = [os.path.join(folder, f"{kind}-{batch}.npy") for kind in ("ids", "labels")]
    np.save(paths[0], ids)
    np.save(paths[1], labels)
    return f"input_ids={paths[0]},labels={paths[1]}"


def outcome(folder, tag, data, bundle):
    gradients, checkpoint = os.path.join(folder, tag + ".g"), os.path.join(folder, tag + ".c")
    metrics = z.run(bundle, data, STEPS, gradients=gradients, checkpoint=checkpoint, extra=("--seed", 5))
    return [m["loss"] for m in metrics], z.safetensors(gradients), z.safetensors(checkpoint)


def split(plan, seed):
    """The plan with W; in an order, W is at a random place after its B."""
    plan["split_backward"] = True
    schedule = plan.get("schedule")
    if isinstance(schedule, dict) and "order" in schedule and not any(w.startswith("W") for tasks in schedule["order"].values() for w in tasks):
        draw = random.Random(seed)
        for tasks in schedule["order"].values():
            for word in [w for w in tasks if w.startswith("B")]:
                tasks.insert(draw.randrange(tasks.index(word) + 1, len(tasks) + 1), "W" + word[1:])
    return plan


def zoo():
    """(name, model, batch, data): models of every shape, with losses of several kinds."""
    home = os.path.join(z.SMALL, "zoo")
    with open(os.path.join(home, "reference.json")) as f:
        reference = json.load(f)
    for name, model in reference["models"].items():
        data = ",".join(f"{key}={os.path.join(home, f'{name}.{key}.npy')}" for key in model["inputs"])
        yield name, os.path.join(home, name + ".onnx"), reference["batch"], data


def cases(folder, count, first, trainings):
    """(seed, label, model, sequence, batch, data, training)"""
    for number, (name, model, batch, data) in enumerate(zoo()):
        for seed in (2 * number, 2 * number + 1):
            yield seed, name, model, 0, batch, data, z.SGD
    data = {}
    for seed in range(first, first + count):
        batch, kind = BATCHES[seed % len(BATCHES)], (seed // len(BATCHES)) % trainings
        if batch not in data:
            data[batch] = make_data(folder, batch)
        yield seed, "gpt", MODEL, LENGTH, batch, data[batch], TRAININGS[kind]


def main():
    words = [word for word in sys.argv[1:] if word != "--groups"]
    count = int(words[0]) if len(words) > 0 else 200
    first = int(words[1]) if len(words) > 1 else 0
    always = words[2] if len(words) > 2 else None
    groups = "--groups" in sys.argv
    results, references, compiling, splitting = [], {}, 0.0, 0
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for seed, label, model, length, batch, data, training in cases(folder, count, first, len(TRAININGS) - 2 * groups):
            precision = always or ("f64:bf16" if seed % 3 == 0 else "f64")
            key = (label, batch, str(training), precision)
            if key not in references:
                bundle = os.path.join(folder, f"one-{len(references)}.zorse")
                z.compile(model, bundle, z.cluster(folder, ["d0"]), batch, length, None, training, precision)
                references[key] = bundle, outcome(folder, "one", data, bundle)
            reference_bundle, (loss, gradients, state) = references[key]
            devices = 1 + (seed * 7) % 6
            names = [f"d{i}{half}" for i in range(devices) for half in ("ab" if groups else [""])]
            cluster = z.cluster(folder, names)
            plan_file = os.path.join(folder, "random.plan.json")
            begin = time.monotonic()
            z.call("random-plan", os.path.join(reference_bundle, "summary.pb"), devices, batch, seed, plan_file)
            if seed % 2 or groups:
                with open(plan_file) as f:
                    plan = json.load(f)
                plan = split(plan, seed) if seed % 2 else plan
                plan = z.with_groups(plan, seed) if groups else plan
                with open(plan_file, "w") as f:
                    json.dump(plan, f)
            bundle = os.path.join(folder, "random.zorse")
            z.compile(model, bundle, cluster, batch, length, plan_file, training, precision)
            compiling += time.monotonic() - begin
            if seed % 2:
                splitting += any(" W cell " in z.call("zorse-inspect", bundle, f"--program={name}")[1] for name in names)
            l, g, s = outcome(folder, "random", data, bundle)
            total = max(1e-30, max(float(np.max(np.abs(x))) for x in gradients.values()))
            error = max([z.relative(l, loss)] + [float(np.max(np.abs(g[k] - gradients[k]))) / total for k in gradients] +
                        [float(np.max(np.abs(s[k] - state[k]))) for k in state])
            good = error <= LIMIT and set(g) == set(gradients) and set(s) == set(state)
            worst = max(worst, error)
            results.append(good)
            if not good:
                keep = os.path.join(tempfile.gettempdir(), f"zorse-random-{seed}.plan.json")
                os.replace(plan_file, keep)
                print(f"FAIL {label}, {precision}, seed {seed}: batch {batch}, {devices} devices, {training}: error {error:.3g}; plan kept as {keep}", flush=True)
            elif len(results) % 20 == 0:
                print(f"{len(results)} plans: worst error {worst:.3g} (limit {LIMIT:g}), compiling {compiling:.0f} s", flush=True)
    results.append(splitting >= len(results) // 3)  # otherwise W is not tested
    z.finish(results, f"{len(results) - 1} random tilings{' of groups' if groups else ''}{' in ' + always if always else ''}, {splitting} of them with W: worst error {worst:.3g} (limit {LIMIT:g}), compiling {compiling:.1f} s together")


if __name__ == "__main__":
    main()
