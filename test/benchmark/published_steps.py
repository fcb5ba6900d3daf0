"""Predicts steps that others have published, and compares them with the published seconds.

    published_steps.py [ROW…] [--groups] [--fit] [--median 0.08] [--worst 0.2]

--groups: also rows with tensor parallelism, which take minutes.

Rows: published-steps.csv, all of equal GPUs. A row states its layout: replicas (dp), devices of a group (tp), stages
(pp), samples of a micro-batch, recomputation and sharding. The script writes it as a plan (devices of a group are
adjacent, then replicas, then stages, as in Megatron-LM) and lets zorse-plan simulate it, without a search. Without
pipeline stages, the blocks of a device are in several stages: frameworks gather the parameters of a block, and sum its
gradients, while they compute others. With pipeline stages, sends are eager and do not overlap. Links of a node without a
published value are 400 GB/s for H100.

A framework is slower than the compiled kernels that the model describes: MODES has the `execution_mode` of each. --fit
predicts the rows of tuned frameworks with `compiled` kernels, and prints the median ratio of measured to predicted seconds
of every second row. The factor of `tuned` (kTunedTimes in include/zorse/Planning/DeviceDefaults.h) is this ratio; --fit
fails if it is not. Without --fit, the other rows are predicted with the mode of their framework and nothing else. Fails if
the median of their errors exceeds --median, or the largest --worst.
"""
import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import harness as z

# Stages of a device without pipeline parallelism. With fewer, gathers and sums are exposed. With more, recomputation is
# cheaper than in frameworks: the last product of a stage is not computed again.
CHUNKS = 8
MODES = {"Composer FSDP": "tuned", "InternEvo": "tuned", "nanotron": "tuned", "Megatron-LM": "tuned", "Megatron-DeepSpeed": "tuned", "Megatron-DeepSpeed 1F1B": "tuned", "torchtitan": "eager", "Alpa": "eager"}
TUNED_TIMES = 1.3
HERE = os.path.dirname(os.path.abspath(__file__))


def stages_of(layers, pp):
    """Unit ranges: one unit for the embedding, two per block, one for the head."""
    cuts = [0] + [1 + 2 * (layers * s // pp) for s in range(1, pp)] + [2 * layers + 2]
    return list(zip(cuts, cuts[1:]))


def order_of(name, first, chunks, count):
    """Tasks of a replica: the forwards of a micro-batch, block after block, and its backwards. Cells are numbered by
    chunk, then micro-batch."""
    cell = lambda chunk, m: first + chunk * count + m
    return {name: [task for m in range(count) for task in [f"F{cell(c, m)}" for c in range(chunks)] + [f"B{cell(c, m)}" for c in reversed(range(chunks))]]}


def plan_of(row, names):
    dp, tp, pp, layers = (int(row[k]) for k in ("dp", "tp", "pp", "layers"))
    batch, micro = int(row["global_batch"]), int(row["micro_batch"])
    place = lambda s, r: names[(s * dp + r) * tp:(s * dp + r + 1) * tp]
    plan = {"format": 2, "global_batch_size": batch, "devices": names, "schedule": "1f1b"}
    if tp > 1:
        plan["groups"] = [{"name": f"g{s}.{r}", "devices": place(s, r)} for s in range(pp) for r in range(dp)]
    name = lambda s, r: f"g{s}.{r}" if tp > 1 else place(s, r)[0]
    stages = [(s, units) for s, units in enumerate(stages_of(layers, pp))]
    if pp > 1:
        plan |= {"overlap_communication": False, "send_protocol": "eager"}
    else:
        count = batch // dp // micro
        chunks = min(layers, CHUNKS)
        stages = [(0, units) for units in stages_of(layers, chunks)]
        plan["schedule"] = {"order": {k: v for r in range(dp) for k, v in order_of(name(0, r), r * chunks * count, chunks, count).items()}}
    plan["pipelines"] = [{"samples": [batch * r // dp, batch * (r + 1) // dp],
                          "stages": [{"units": list(units), "micro_batch_size": micro, "devices": [name(s, r)]} for s, units in stages]} for r in range(dp)]
    if row["recompute"] == "full":
        plan["activations"] = "recompute"
    if row["sharding"] == "zero3":
        plan["offload"] = [{"reshard_after_forward": True, "buffer_count": 3}]  # one computes, one is gathered, one is reduced
    return plan


def predict(row, mode, folder):
    """Seconds of a step. mode: `execution_mode` of the devices"""
    count, per_node = int(row["gpus"]), int(row["gpus_per_node"])
    cluster = {"nodes": [{"name": "n", "count": -(-count // per_node), "nic": {"bandwidth": f"{row['node_link'] or 400} GB/s", "latency": "5 us"},
                          "devices": [{"name": "d", "type": row["gpu"], "kind": "cuda", "memory": 0, "execution_mode": mode, "count": min(count, per_node)}]}]}
    plan = plan_of(row, [f"d:{i}" for i in range(count)])
    paths = {kind: os.path.join(folder, f"{row['id']}.{mode}.{kind}") for kind in ("cluster.yaml", "plan.json", "report.json")}
    for kind, content in (("cluster.yaml", cluster), ("plan.json", plan)):
        with open(paths[kind], "w") as f:
            json.dump(content, f)
    shape = "family={arch},layers={layers},hidden={hidden},heads={heads},kv_heads={kv_heads},ffn={ffn},vocabulary={vocab},precision={precision}".format(**row)
    done = subprocess.run([os.path.join(z.BIN, "zorse-plan"), "--model-shape", shape, "--seq-length", row["seq"], "--global-batch-size", row["global_batch"], "--cluster", paths["cluster.yaml"],
                           "--plan", paths["plan.json"], "--json", paths["report.json"], "--quiet"], capture_output=True, text=True)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"zorse-plan ended with {done.returncode}"])[0]
    with open(paths["report.json"]) as f:
        return json.load(f)["step_seconds"]


def fits(ratios):
    """Whether the factor of `tuned` is the median ratio of every second row of each framework. ratios: by framework"""
    half = [ratio for framework, found in ratios.items() if MODES[framework] == "tuned" for ratio in found[::2]]
    factor = statistics.median(half)
    print(f"steps of tuned frameworks take {factor:.3f} times those of compiled kernels, the median of {len(half)} rows; kTunedTimes is {TUNED_TIMES}")
    return abs(factor - TUNED_TIMES) < 0.02


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", nargs="*", metavar="ROW")
    parser.add_argument("--groups", action="store_true")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--median", type=float, default=0.08)
    parser.add_argument("--worst", type=float, default=0.2)
    given = parser.parse_args()
    with open(os.path.join(HERE, "published-steps.csv")) as f:
        rows = [row for row in csv.DictReader(f) if (given.groups or row["tp"] == "1") and (not given.rows or any(row["id"].startswith(word) for word in given.rows))]
    if given.fit:
        rows = [row for row in rows if MODES[row["framework"]] == "tuned"]
    mode = lambda row: "compiled" if given.fit else MODES[row["framework"]]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        predicted = list(pool.map(lambda row: predict(row, mode(row), folder), rows))
    ratios, refused = {}, 0
    for row, found in zip(rows, predicted):
        if isinstance(found, str):
            refused += 1
            print(f"{row['id']}: {found}")
            continue
        ratio = float(row["step_s"]) / found
        ratios.setdefault((row["framework"], int(row["tp"]) > 1), []).append(ratio)
        print(f"{row['id']:9} {row['gpus']:>5} {row['gpu']:9} {mode(row):8} dp {row['dp']:>4} tp {row['tp']:>2} pp {row['pp']:>2}  measured {float(row['step_s']):8.3f} s, predicted {found:8.3f} s, ratio {ratio:.2f}")
    errors = []
    for (framework, divided), found in sorted(ratios.items()):
        line = f"{framework}, {'with' if divided else 'without'} tensor parallelism: {len(found)} rows, ratio {statistics.median(found):.2f}, {min(found):.2f} to {max(found):.2f}"
        if not divided and not given.fit and len(found) > 1:
            errors += [ratio - 1 for ratio in found[1::2]]
            line += f"; errors of every second row: {', '.join(f'{100 * (ratio - 1):+.0f}' for ratio in found[1::2])} %"
        print(line)
    if given.fit:
        return not fits({framework: found for (framework, divided), found in ratios.items() if not divided})
    sizes = sorted(abs(e) for e in errors) or [0.0]
    print(f"{len(errors)} steps of others without tensor parallelism, predicted with the execution mode of their framework: median error {100 * statistics.median(sizes):.1f} % (limit {100 * given.median:g} %), worst {100 * sizes[-1]:.1f} % (limit {100 * given.worst:g} %); {refused} refused")
    return refused > 0 or statistics.median(sizes) > given.median or sizes[-1] > given.worst


if __name__ == "__main__":
    sys.exit(main())
