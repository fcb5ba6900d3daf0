"""Plans that split the backward, compared with one device that does not: losses, every first-step gradient and every
parameter after 3 steps in f64, to 1e-9.

    split_backward.py [--spawn]     --spawn: also as one process per device, bit-identical to threads

Pipelines of GPT and LLaMA with W right after its B, as late as possible, and anywhere in between; random plans with W
are in random_tilings.py. Orders that list W too early, twice or not at all are errors.
"""
import json
import os
import sys
import tempfile

import numpy as np

import harness as z
from random_tilings import split

STEPS, LIMIT = 3, 1e-9
UNITS, BATCH = 8, 8  # of gpt and llama: embedding, 3 x (attention, mlp), head


def by_hand():
    """name -> (devices, cells, more)"""
    micro = [(s, s + 2) for s in range(0, BATCH, 2)]
    two = [(0, 4, s, t, "a") for s, t in micro] + [(4, UNITS, s, t, "b") for s, t in micro]  # cells 0-3 on a, 4-7 on b
    out = {}
    out["one device"] = (["a"], [(0, UNITS, 0, 3, "a"), (0, UNITS, 3, 8, "a")], {})
    out["pipeline, 1f1b"] = (["a", "b"], two, {"schedule": "1f1b"})
    out["pipeline, gpipe"] = (["a", "b"], two, {"schedule": "gpipe"})
    out["pipeline, every W last"] = (["a", "b"], two, {"schedule": {"order": {
        "a": ["F0", "F1", "B0", "F2", "B1", "F3", "B2", "B3", "W3", "W0", "W2", "W1"], "b": ["F4", "B4", "F5", "B5", "F6", "B6", "F7", "B7", "W7", "W6", "W5", "W4"]}}})
    out["pipeline, W as filler"] = (["a", "b"], two, {"schedule": {"order": {
        "a": ["F0", "F1", "F2", "B0", "F3", "B1", "W0", "B2", "W1", "B3", "W2", "W3"], "b": ["F4", "B4", "F5", "B5", "W4", "F6", "B6", "W5", "F7", "B7", "W6", "W7"]}}})
    chunks = [(0, 1, 0, 8, "a"), (1, 3, 0, 4, "b"), (1, 3, 4, 8, "c"), (3, 6, 0, 8, "a"), (6, UNITS, 0, 5, "c"), (6, UNITS, 5, 8, "b")]  # the embedding alone has no B
    out["chunks, an embedding alone"] = (["a", "b", "c"], chunks, {})
    out["data parallel, uneven"] = (["a", "b"], [(0, UNITS, 0, 5, "a"), (0, UNITS, 5, 8, "b")],
                                    {"state": {"groups": [{"group": "*", "owners": [{"device": "b", "fraction": 0.3}, {"device": "a", "fraction": 0.7}]}]}})
    return out


def outcome(folder, bundle, data, processes=False):
    """Losses, gradients of the first step (in threads) and parameters after the last."""
    gradients, checkpoint = None if processes else os.path.join(folder, "g"), os.path.join(folder, "c")
    metrics = z.run(bundle, data, STEPS, gradients=gradients, checkpoint=checkpoint, extra=("--seed", 5, "--spawn" if processes else "--in-process"))
    return [m["loss"] for m in metrics], {} if processes else z.safetensors(gradients), z.safetensors(checkpoint)


def difference(found, expected):
    error, _ = z.gradient_error(found[1], expected[1])
    state = max(float(np.max(np.abs(found[2][k] - expected[2][k]))) for k in expected[2])
    return max(z.relative(found[0], expected[0]), error, state, 0.0 if set(found[1]) == set(expected[1]) else float("inf"))


def tasks_of(plan):
    schedule = plan.get("schedule", "1f1b")
    return schedule if isinstance(schedule, str) else "an order"


def refusals(folder, model):
    cells = [(0, 4, 0, 8, "a"), (4, UNITS, 0, 8, "b")]
    good = {"a": ["F0", "B0", "W0"], "b": ["F1", "B1", "W1"]}
    cases = {
        "W before its B": ({"split_backward": True, "schedule": {"order": {**good, "a": ["F0", "W0", "B0"]}}}, ["W of cell 0", "cannot run"]),
        "W twice": ({"split_backward": True, "schedule": {"order": {**good, "a": ["F0", "B0", "W0", "W0"]}}}, ["W0 is listed twice"]),
        "no W": ({"split_backward": True, "schedule": {"order": {**good, "a": ["F0", "B0"]}}}, ["does not contain W0"]),
        "W without splitting": ({"schedule": {"order": good}}, ["W0 is no task of this plan", "split_backward"]),
        "split_backward is a word": ({"split_backward": "yes"}, ["split_backward", "expected true or false"]),
    }
    results = []
    for name, (more, words) in cases.items():
        file = z.plan(folder, "refused", BATCH, ["a", "b"], cells, **more)
        code, _, err = z.compile(model, os.path.join(folder, "refused.zorse"), z.cluster(folder, ["a", "b"]), BATCH, 32, file, ok=False)
        good_message = code == 1 and all(w in err for w in words)
        print(f"{'ok  ' if good_message else 'FAIL'} refused: {name}" + ("" if good_message else f": exit {code}: {err.strip()}"), flush=True)
        results.append(good_message)
    return results


def main():
    results, differences, splitting = [], [], 0
    with tempfile.TemporaryDirectory() as folder:

        def compare(name, model, length, data, plan, training, expected, processes=False):
            nonlocal splitting
            file, bundle = os.path.join(folder, "plan.json"), os.path.join(folder, "split.zorse")
            with open(file, "w") as f:
                json.dump(plan, f)
            devices = [d if isinstance(d, str) else d["name"] for d in plan["devices"]]
            z.compile(model, bundle, z.cluster(folder, devices), plan["global_batch_size"], length, file, training, "f64")
            weights = sum(" W cell " in line for device in devices for line in z.call("zorse-inspect", bundle, f"--program={device}")[1].splitlines())
            splitting += weights > 0
            found = outcome(folder, bundle, data)
            differences.append(difference(found, expected))
            label = f"{name}: {len(plan['cells'])} cells on {len(devices)} devices, {tasks_of(plan)}, {weights} W"
            results.append(z.check(label, differences[-1], LIMIT) and weights > 0)
            if processes:
                again = outcome(folder, bundle, data, processes=True)
                same = again[0] == found[0] and all(np.array_equal(again[2][k], found[2][k]) for k in found[2])
                print(f"{'ok  ' if same else 'FAIL'} {name}: processes and threads bit-equal", flush=True)
                results.append(same)

        results += refusals(folder, os.path.join(z.SMALL, "gpt.onnx"))
        for model in ("gpt", "llama"):
            path, data = os.path.join(z.SMALL, model + ".onnx"), os.path.join(z.SMALL, model + ".tokens.bin")
            one = os.path.join(folder, model + ".zorse")
            z.compile(path, one, z.cluster(folder, ["a"]), BATCH, 32, None, z.ADAMW, "f64")
            expected = outcome(folder, one, data)
            for name, (devices, cells, more) in by_hand().items():
                plan = json.load(open(z.plan(folder, "by-hand", BATCH, devices, cells, **more)))
                compare(f"{model}, {name}", path, 32, data, split(plan, 0), z.ADAMW, expected, processes="--spawn" in sys.argv and len(devices) > 1)
    z.finish(results, f"{splitting} plans that split the backward against one device: worst difference {max(differences):.2g} (limit {LIMIT:g})")


if __name__ == "__main__":
    main()
