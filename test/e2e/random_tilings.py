"""Random valid tilings of a tiny GPT in f64 against one device: every gradient, every loss and every parameter after 3 steps to 1e-9.

    random_tilings.py [COUNT] [FIRST SEED]     default 200 from 0

Dropout is on, labels are ignored unevenly, the first sample is ignored wholly; tilings have pinwheels, one-row cells, prime batches and idle devices. Of
every four, one trains with AdamW and clipping, one with AdamW, one with SGD and momentum, one with SGD and clipping; the embedding is tied throughout.
"""
import os
import sys
import tempfile
import time

import numpy as np

import harness as z

MODEL = os.path.join(z.SMALL, "gpt-tiny-dropout.onnx")
LENGTH, VOCABULARY, STEPS = 8, 32, 3
BATCHES = (1, 2, 3, 5, 7, 8, 11, 13)
TRAININGS = ({"optimizer": "adamw", "lr": "1e-2", "clip": "0.5"}, {"optimizer": "adamw", "lr": "1e-2", "clip": "0"},
             {"optimizer": "sgd", "lr": "0.1", "momentum": "0.9"}, {"optimizer": "sgd", "lr": "0.1", "clip": "0.3"})
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


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    results, references, data, compiling = [], {}, {}, 0.0
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            batch, kind = BATCHES[seed % len(BATCHES)], (seed // len(BATCHES)) % 4
            training = TRAININGS[kind]
            if batch not in data:
                data[batch] = make_data(folder, batch)
            if (batch, kind) not in references:
                bundle = os.path.join(folder, f"one-{batch}-{kind}.zorse")
                z.compile(MODEL, bundle, z.cluster(folder, ["d0"]), batch, LENGTH, None, training, "f64")
                references[batch, kind] = bundle, outcome(folder, "one", data[batch], bundle)
            reference_bundle, (loss, gradients, state) = references[batch, kind]
            devices = 1 + (seed * 7) % 6
            cluster = z.cluster(folder, [f"d{i}" for i in range(devices)])
            plan_file = os.path.join(folder, "random.plan.json")
            begin = time.monotonic()
            z.call("zorse-plan", "--random", seed, "--summary", os.path.join(reference_bundle, "summary.pb"), "--devices", devices, "--batch", batch, "-o", plan_file)
            bundle = os.path.join(folder, "random.zorse")
            z.compile(MODEL, bundle, cluster, batch, LENGTH, plan_file, training, "f64")
            compiling += time.monotonic() - begin
            l, g, s = outcome(folder, "random", data[batch], bundle)
            total = max(1e-30, max(float(np.max(np.abs(x))) for x in gradients.values()))
            error = max([z.relative(l, loss)] + [float(np.max(np.abs(g[k] - gradients[k]))) / total for k in gradients] +
                        [float(np.max(np.abs(s[k] - state[k]))) for k in state])
            good = error <= LIMIT and set(g) == set(gradients) and set(s) == set(state)
            worst = max(worst, error)
            results.append(good)
            if not good:
                keep = os.path.join(tempfile.gettempdir(), f"zorse-random-{seed}.plan.json")
                os.replace(plan_file, keep)
                print(f"FAIL seed {seed}: batch {batch}, {devices} devices, {training}: error {error:.3g}; plan kept as {keep}", flush=True)
            elif (seed + 1) % 20 == 0:
                print(f"{seed + 1 - first}/{count}: worst error {worst:.3g} (limit {LIMIT:g}), compiling {compiling:.0f} s", flush=True)
    z.finish(results, f"{count} random tilings: worst error {worst:.3g} (limit {LIMIT:g}), compiling {compiling:.1f} s together")


if __name__ == "__main__":
    main()
