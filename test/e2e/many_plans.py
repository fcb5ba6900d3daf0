"""Bundles of many plans, to compare two ways of running them bit by bit.

Random tilings (pinwheels, one-row cells, prime batches, idle devices) of a tiny GPT with dropout, and hand-written
plans of GPT and LLaMA: pipelines, uneven shares, owners without state, 1F1B and GPipe.
"""
import json
import os
import re

import harness as z
from random_tilings import BATCHES, LENGTH, MODEL, TRAININGS, make_data

STEPS = 4


def by_hand(folder):
    """(name, bundle, data, extra arguments of zorse-run)"""
    shapes = {
        "pipeline of 2, 1F1B": (["a", "b"], [(0, 4, s, s + 4, "a") for s in (0, 4, 8)] + [(4, 8, s, s + 4, "b") for s in (0, 4, 8)], {"schedule": "1f1b"}),
        "asymmetric, uneven": (["a", "b", "c"], [(0, 5, 0, 5, "a"), (0, 5, 5, 12, "b"), (5, 8, 0, 12, "c")], {}),
        "data parallel, uneven": (["a", "b", "c"], [(0, 8, 0, 7, "a"), (0, 8, 7, 11, "b"), (0, 8, 11, 12, "c")], {}),
    }
    for model in ("gpt", "llama"):
        for name, (devices, cells, more) in shapes.items():
            bundle = os.path.join(folder, f"{model}-{''.join(devices)}-{len(cells)}-{cells[0][3]}.zorse")
            z.compile(os.path.join(z.SMALL, model + ".onnx"), bundle, z.cluster(folder, devices), 12, 32, z.plan(folder, os.path.basename(bundle), 12, devices, cells, **more))
            yield f"{model}, {name}", bundle, os.path.join(z.SMALL, model + ".tokens.bin"), ["--shuffle-seed", "3"]


def random(folder, count, most_devices=5):
    for seed in range(count):
        batch, training = BATCHES[1 + seed % (len(BATCHES) - 1)], TRAININGS[seed % 4]
        devices = [f"d{i}" for i in range(2 + seed % (most_devices - 1))]
        one, bundle = os.path.join(folder, "one.zorse"), os.path.join(folder, f"random-{seed}.zorse")
        z.compile(MODEL, one, z.cluster(folder, ["d0"]), batch, LENGTH, None, training, "f32")
        plan = os.path.join(folder, "random.plan.json")
        z.call("random-plan", os.path.join(one, "summary.pb"), len(devices), batch, 1000 + seed, plan)
        z.compile(MODEL, bundle, z.cluster(folder, devices), batch, LENGTH, plan, training, "f32")
        yield f"random plan {seed}, {len(devices)} devices, batch {batch}", bundle, make_data(folder, batch), ["--seed", "5"]


TABLES = (  # everything on the hosts, updated there or on devices; or parts of it
    [{"parameters": "host", "optimizer_states": "host", "gradients": "host", "reshard_after_forward": True}],
    [{"parameters": "host", "optimizer_states": "host", "optimizer": "host"}],
    [{"optimizer_states": "host"}],
    [{"devices": ["d0"], "parameters": "host", "optimizer_states": "host", "optimizer": "host"}, {"devices": ["d1"], "optimizer_states": "host", "gradients": "host"}],
    [],
)


def order_of(bundle, devices):
    """The order of tasks on a bundle's devices, from plan.json."""
    def of(device):
        text = z.call("zorse-inspect", bundle, f"--program={device}")[1]
        return [kind + cell for kind, cell in re.findall(r"^ *exec\.compute \d+ ([FBW]) cell (\d+) ", text, re.M)]
    return {"order": {device: of(device) for device in devices}}


def tiers(folder, count, most_devices=4):
    """Random tilings with state on hosts, and the same tilings with other memory placement: (name, bundle, data, extra
    arguments, other bundles)

    All have the order of the first. Schedules depend on times, which memory placement changes, and another order
    changes the last bits of sums."""
    for seed in range(count):
        batch, training = BATCHES[1 + seed % (len(BATCHES) - 1)], {**TRAININGS[seed % 4], "max-grad-norm": "0"}
        devices = [f"d{i}" for i in range(2 + seed % (most_devices - 1))]
        one, drawn = os.path.join(folder, "one.zorse"), os.path.join(folder, "random.plan.json")
        z.compile(MODEL, one, z.cluster(folder, ["d0"]), batch, LENGTH, None, training, "f32")
        z.call("random-plan", os.path.join(one, "summary.pb"), len(devices), batch, 2000 + seed, drawn)
        with open(drawn) as f:
            plan = json.load(f)
        paths = []
        z.compile(MODEL, one, z.cluster(folder, devices), batch, LENGTH, drawn, training, "f32")
        plan["schedule"] = order_of(one, devices)
        for k, table in enumerate(TABLES[seed % 4:seed % 4 + 1] + TABLES[:seed % 4] + TABLES[seed % 4 + 1:]):
            plan.pop("offload", None)
            plan["state"].pop("optimizer_in_backward", None)
            plan.update({"offload": table} if table else {})
            if k % 2 == seed % 2:  # without clipping, the time of a group update changes no bit
                plan["state"]["optimizer_in_backward"] = True
            changed = os.path.join(folder, "tiers.plan.json")
            with open(changed, "w") as f:
                json.dump(plan, f)
            paths.append(os.path.join(folder, f"tiers-{seed}-{k}.zorse"))
            z.compile(MODEL, paths[-1], z.cluster(folder, devices), batch, LENGTH, changed, training, "f32")
        yield f"random plan {seed}, {len(devices)} devices, batch {batch}", paths[0], make_data(folder, batch), ["--seed", "5"], paths[1:]


def bundles(folder, count):
    """`count` of them: a third written by hand (at most six), the others random."""
    hand = min(6, count // 3)
    for i, item in enumerate(by_hand(folder)):
        if i == hand:
            break
        yield item
    yield from random(folder, count - hand)


def outcome(folder, metrics, checkpoint):
    """The results of a run, without values that depend on time."""
    steps = []
    with open(metrics) as f:
        for line in f:
            step = json.loads(line)
            steps.append({k: v for k, v in step.items() if k in ("step", "loss", "eval_loss", "grad_norm", "lr", "skipped")})
    with open(checkpoint, "rb") as f:
        return steps, f.read()


def run_words(folder, bundle, data, extra, tag):
    metrics, checkpoint = os.path.join(folder, tag + ".jsonl"), os.path.join(folder, tag + ".safetensors")
    words = [bundle, "--data", data, "--max-steps", STEPS, "--eval-data", data, "--eval-interval", 2, "--eval-iters", 1, "--metrics-file", metrics, "--save-weights", checkpoint, "--quiet"]
    return [str(w) for w in words + list(extra)], metrics, checkpoint


def threads(folder, bundle, data, extra):
    words, metrics, checkpoint = run_words(folder, bundle, data, extra, "threads")
    z.call("zorse-run", *words, "--in-process")
    return outcome(folder, metrics, checkpoint)
