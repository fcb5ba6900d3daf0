"""Predicts the steps that Sailor (SOSP 2025) has measured and published, from its own profiles, without fitting.

    sailor_steps.py [ROW…] [--median 0.09] [--opt-mean 0.09]

Rows: sailor-steps.csv, 36 runs of DeepSpeed in f32: OPT-350M and GPT-Neo 2.7B on nodes of four GH200 (opt, neo), and
OPT-350M on nodes of RTX 3090, RTX 2080 and Titan RTX (mixed). Times of layers: sailor-layers.csv. Both are figures of
github.com/eth-easl/sailor (sailor/Planner/simulations: validation, profiles_tmp.json).

Sailor's unit is a node whose GPUs divide every layer, and its times include their all-reduces. So a device here is such
a node. Stages exchange an activation once per node, because DeepSpeed divides it among the GPUs. Every step is
simulated with overlapped communication, with rendezvous and with eager sends.

Fails if, with eager sends, the median error of opt or neo exceeds --median, or the mean error of opt --opt-mean.
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

HERE = os.path.dirname(os.path.abspath(__file__))
SEQUENCE = 2048
# Parameters of layers, and bytes of a sample between two of them: Sailor's llm_info.json.
MODELS = {
    "OPT-350": {"embedding": 53608448, "first block": 12596224, "block": 12596224, "head": 51513344, "output": 8388608},
    "GPT-Neo-2.7": {"embedding": 134021120, "first block": 78676480, "block": 78676480, "head": 5120, "output": 20971520},
}
# Bytes/s between nodes of a type with 2, 4 or 8 GPUs, and between nodes of two types: the largest of
# multizone_bandwidths_het.json. Its value for 8 GPUs of RTX 2080 and Titan RTX is that of the other pairs.
NODES = {"GH-96": {4: 92551901044}, "RTX-3090": {2: 115701788, 8: 114876125}, "RTX-2080": {8: 2857736369}, "Titan-RTX": {2: 2857650203, 8: 2857712077}}
PAIRS = {2: 115701788, 8: 114819757}
MODES = {"overlap": {}, "rendezvous": {"overlap_communication": False}, "eager": {"overlap_communication": False, "send_protocol": "eager"}}
# neo-4 is measured with 26 of the model's 34 layers, and has the seconds of its gradient sum as those of its step.
INCONSISTENT = {"neo-4"}


def read(name):
    with open(os.path.join(HERE, name)) as f:
        return list(csv.DictReader(f))


def gpus_of(row):
    """GPU types by stage and replica."""
    stages = [stage.split() for stage in row["gpus"].split(" / ")]
    if len(stages) == 1 and len(stages[0]) == 1:
        return [[row["gpus"]] * int(row["dp"]) for _ in range(int(row["pp"]))]
    return stages


def cluster_of(gpus, tp):
    """A site per GPU type: links between sites have the bandwidth of their two types."""
    count = {}
    for stage in gpus:
        for gpu in stage:
            count[gpu] = count.get(gpu, 0) + 1
    nodes = [{"name": f"{gpu}-node", "count": n, "site": gpu, "nic": {"bandwidth": NODES[gpu][tp], "latency": 0},
              "devices": [{"name": gpu, "type": gpu, "kind": "sim", "flops_per_second": "1 TFLOP/s"}]} for gpu, n in count.items()]
    links = {"inter_node": {"bandwidth": "unlimited", "latency": 0}, "collectives": "exchange"}
    if len(count) > 1:
        links["inter_site"] = {"bandwidth": "unlimited", "per_flow_bandwidth": PAIRS[tp], "latency": 0}
    return {"sites": [{"name": gpu} for gpu in count], "nodes": nodes, "links": links}, count


def layers_of(row, gpus, times):
    """The model with the times of its layers."""
    model, layers = MODELS[row["model"]], int(row["cuts"].split()[-1])
    names = ("embedding", "first block", "block", "head")
    devices = []
    for gpu in gpus:
        measured = {t["layer"]: t for t in times if (t["model"], t["gpu"], t["tp"], t["micro_batch"]) == (row["model"], gpu, row["tp"], row["micro_batch"])}
        parameters = model["embedding"] + (layers - 2) * model["block"] + model["head"]
        free = {"per_element": 0}
        devices.append({"device": gpu, "launch": 0, "norm": free, "copy": {"per_byte": 0}, "load": {"per_byte": 0},
                        "update": {"per_element": float(measured["block"]["update_s"]) / parameters},
                        "unit_classes": {name: [{"batch_size": int(row["micro_batch"]), "forward": float(measured[name]["forward_s"]), "backward": float(measured[name]["backward_s"])}] for name in names}})
    return {"format": 1, "compute_type": "f32", "tokens_per_sample": SEQUENCE, "devices": devices,
            "classes": {name: {"parameters": model[name], "output": model["output"], "saved": 0} for name in names},
            "layers": [{"class": "embedding"}, {"class": "first block"}, {"class": "block", "count": layers - 3}, {"class": "head"}]}


def plan_of(row, gpus, count):
    cuts, dp, batch = list(map(int, row["cuts"].split())), int(row["dp"]), int(row["global_batch"])
    free = {gpu: [f"{gpu}:{i}" for i in range(n)] for gpu, n in count.items()}
    devices = [[free[gpu].pop(0) for gpu in stage] for stage in gpus]
    return {"format": 2, "global_batch_size": batch, "devices": [name for stage in devices for name in stage], "schedule": "1f1b",
            "pipelines": [{"samples": [batch * r // dp, batch * (r + 1) // dp],
                           "stages": [{"units": [cuts[s], cuts[s + 1]], "micro_batch_size": int(row["micro_batch"]), "devices": [devices[s][r]]} for s in range(len(gpus))]} for r in range(dp)]}


def predict(row, times, folder):
    """Seconds of a step by mode."""
    gpus = gpus_of(row)
    cluster, count = cluster_of(gpus, int(row["tp"]))
    paths = {kind: os.path.join(folder, f"{row['id']}.{kind}.json") for kind in ("layers", "cluster", "report", *MODES)}
    plan = plan_of(row, gpus, count)
    for kind, content in [("layers", layers_of(row, count, times)), ("cluster", cluster), *((mode, {**plan, **keys}) for mode, keys in MODES.items())]:
        with open(paths[kind], "w") as f:
            json.dump(content, f)
    seconds = {}
    for mode in MODES:
        done = subprocess.run([os.path.join(z.BIN, "zorse-plan"), paths["layers"], "--cluster", paths["cluster"], "--plan", paths[mode], "--json", paths["report"], "--quiet"], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{row['id']}, {mode}: {done.stderr.strip()}")
        with open(paths["report"]) as f:
            seconds[mode] = json.load(f)["step_seconds"]
    return seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", nargs="*", metavar="ROW")
    parser.add_argument("--median", type=float, default=0.09)
    parser.add_argument("--opt-mean", type=float, default=0.09)
    given = parser.parse_args()
    rows = [row for row in read("sailor-steps.csv") if not given.rows or any(row["id"].startswith(word) for word in given.rows)]
    times = read("sailor-layers.csv")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        predicted = list(pool.map(lambda row: predict(row, times, folder), rows))
    errors = {}
    for row, seconds in zip(rows, predicted):
        measured = float(row["step_s"])
        counts = row["id"] not in INCONSISTENT
        print(f"{row['id']:8} dp {row['dp']:>2} pp {row['pp']:>2} micro-batch {row['micro_batch']}  measured {measured:9.4f} s, " + ", ".join(f"{mode} {s:9.4f} s ({100 * (s / measured - 1):+5.1f} %)" for mode, s in seconds.items()) + ("" if counts else "  not counted"))
        for mode, s in seconds.items():
            if counts:
                errors.setdefault((row["id"].split("-")[0], mode), []).append(abs(s / measured - 1))
    wrong = False
    for (series, mode), found in errors.items():
        median, mean = statistics.median(found), statistics.mean(found)
        print(f"{series:6} {mode:11} {len(found):2} steps: error median {100 * median:4.1f} %, mean {100 * mean:4.1f} %, worst {100 * max(found):5.1f} %")
        if mode == "eager" and series != "mixed":
            wrong = wrong or median > given.median or (series == "opt" and mean > given.opt_mean)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
