"""Predicts steps that others have published, and prints the ratio of measured to predicted seconds.

    published_steps.py [ROW…]

Rows: published-steps.csv, all of equal GPUs. A row states its layout: replicas (dp), devices of a group (tp), stages
(pp), samples of a micro-batch, recomputation and sharding. The script writes it as a plan (devices of a group are
adjacent, then replicas, then stages, as in Megatron-LM) and lets zorse-plan simulate it, without a search. The shape
of a GPT has two thirds of the width of its MLP, because the MLPs of `--model-shape` have a gate. Links of a node
without a published value are 400 GB/s for H100.

A framework is slower than the compiled kernels that the model describes, by a constant factor. Therefore rows are
compared with the others of their framework: the last lines print the ratios with and without tensor parallelism.
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

import harness as z

HERE = os.path.dirname(os.path.abspath(__file__))


def stages_of(layers, pp):
    """Unit ranges: one unit for the embedding, two per block, one for the head."""
    cuts = [0] + [1 + 2 * (layers * s // pp) for s in range(1, pp)] + [2 * layers + 2]
    return list(zip(cuts, cuts[1:]))


def plan_of(row, names):
    dp, tp, pp = (int(row[k]) for k in ("dp", "tp", "pp"))
    batch, micro = int(row["global_batch"]), int(row["micro_batch"])
    place = lambda s, r: names[(s * dp + r) * tp:(s * dp + r + 1) * tp]
    plan = {"format": 2, "global_batch_size": batch, "devices": names, "schedule": "1f1b"}
    if tp > 1:
        plan["groups"] = [{"name": f"g{s}.{r}", "devices": place(s, r)} for s in range(pp) for r in range(dp)]
    name = lambda s, r: f"g{s}.{r}" if tp > 1 else place(s, r)[0]
    plan["pipelines"] = [{"samples": [batch * r // dp, batch * (r + 1) // dp],
                          "stages": [{"units": list(units), "micro_batch_size": micro, "devices": [name(s, r)]} for s, units in enumerate(stages_of(int(row["layers"]), pp))]} for r in range(dp)]
    if row["recompute"] == "full":
        plan["activations"] = "recompute"
    if row["sharding"] == "zero3":
        plan["offload"] = [{"reshard_after_forward": True}]
    return plan


def predict(row, folder):
    """Seconds of a step."""
    count, per_node = int(row["gpus"]), int(row["gpus_per_node"])
    cluster = {"nodes": [{"name": "n", "count": -(-count // per_node), "nic": {"bandwidth": f"{row['node_link']} GB/s", "latency": "5 us"},
                          "devices": [{"name": "d", "type": row["gpu"], "kind": "cuda", "memory": 0, "count": min(count, per_node)}]}]}
    plan = plan_of(row, [f"d:{i}" for i in range(count)])
    paths = {kind: os.path.join(folder, f"{row['id']}.{kind}") for kind in ("cluster.yaml", "plan.json", "report.json")}
    for kind, content in (("cluster.yaml", cluster), ("plan.json", plan)):
        with open(paths[kind], "w") as f:
            json.dump(content, f)
    ffn = int(row["ffn"]) if row["arch"] == "llama" else round(int(row["ffn"]) * 2 / 3)
    shape = f"layers={row['layers']},hidden={row['hidden']},heads={row['heads']},kv_heads={row['kv_heads']},ffn={ffn},vocabulary={row['vocab']},precision={row['precision']}"
    done = subprocess.run([os.path.join(z.BIN, "zorse-plan"), "--model-shape", shape, "--seq-length", row["seq"], "--global-batch-size", row["global_batch"], "--cluster", paths["cluster.yaml"],
                           "--plan", paths["plan.json"], "--json", paths["report.json"], "--quiet"], capture_output=True, text=True)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"zorse-plan ended with {done.returncode}"])[0]
    with open(paths["report.json"]) as f:
        return json.load(f)["step_seconds"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", nargs="*", metavar="ROW")
    given = parser.parse_args()
    with open(os.path.join(HERE, "published-steps.csv")) as f:
        rows = [row for row in csv.DictReader(f) if not given.rows or any(row["id"].startswith(word) for word in given.rows)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        predicted = dict(zip([row["id"] for row in rows], pool.map(lambda row: predict(row, folder), rows)))
    ratios = {}
    for row in rows:
        found = predicted[row["id"]]
        if isinstance(found, str):
            print(f"{row['id']}: {found}")
            continue
        ratio = float(row["step_s"]) / found
        ratios.setdefault((row["framework"], int(row["tp"]) > 1), []).append(ratio)
        print(f"{row['id']:9} {row['gpus']:>5} {row['gpu']:9} dp {row['dp']:>4} tp {row['tp']:>2} pp {row['pp']:>2}  measured {float(row['step_s']):8.3f} s, predicted {found:8.3f} s, ratio {ratio:.2f}")
    for (framework, divided), found in sorted(ratios.items()):
        print(f"{framework}, {'with' if divided else 'without'} tensor parallelism: {len(found)} rows, median {statistics.median(found):.2f}, {min(found):.2f} to {max(found):.2f}")


if __name__ == "__main__":
    sys.exit(main())
