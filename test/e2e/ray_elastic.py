"""zorse.ray.train on a cluster of Ray's cluster utility: nodes are killed and join; every step is there once, and the
losses are those of one device.

    ray_elastic.py     exit code 77 without Ray
"""
import json
import os
import queue
import random
import sys
import tempfile
import threading
import time

import harness as z

sys.path.insert(0, os.path.join(z.ROOT, "python"))
STEPS, LIMIT, PAUSE = 600, 2e-5, 1.0


def reference(folder, model, data):
    cluster = z.cluster(folder, ["one"])
    bundle, metrics = os.path.join(folder, "one.zorse"), os.path.join(folder, "one.jsonl")
    z.call("zorse-compile", model, "--cluster", cluster, "--global-batch-size", 16, "--seq-length", 64, "--lr", 1e-3, "--quiet", "-o", bundle)
    z.call("zorse-run", bundle, "--data", data, "--max-steps", STEPS, "--in-process", "--quiet", "--metrics-file", metrics)
    with open(metrics) as f:
        return [json.loads(line)["loss"] for line in f]


def main():
    try:
        import ray
        from ray.cluster_utils import Cluster
    except ImportError:
        print("Ray is not installed")
        return 77
    os.environ.update(RAY_DEDUP_LOGS="0", RAY_health_check_initial_delay_ms="500", RAY_health_check_period_ms="300", RAY_health_check_failure_threshold="3")
    os.environ["ZORSE_BIN"] = z.BIN
    os.environ["PYTHONPATH"] = os.path.join(z.ROOT, "python")  # of Ray's workers
    import zorse.ray
    results = []
    with tempfile.TemporaryDirectory() as folder:
        model, data = os.path.join(z.ROOT, "models/small/gpt-bytes.onnx"), os.path.join(folder, "data.txt")
        with open(data, "wb") as f:
            f.write(bytes(random.Random(5).choices(range(97, 123), k=300_000)))
        expected = reference(folder, model, data)
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "node_name": "n0"})
        nodes = {name: cluster.add_node(num_cpus=1, node_name=name) for name in ("n1", "n2", "n3")}
        ray.init(address=cluster.address, logging_level="error")
        moments, wanted = [], queue.Queue()
        changes = {40: ("remove", "n3"), 120: ("remove", "n2"), 200: ("add", "n3")}

        def on_step(step):
            moments.append(time.monotonic())
            if step.step in changes:
                wanted.put(changes.pop(step.step))

        described = {"nodes": [{"name": f"n{i}", "devices": [{"name": f"cpu{i}", "kind": "cpu", "flops_per_second": 20e9, "memory": "2GiB"}]} for i in range(4)]}

        def train():
            try:
                zorse.ray.train(model, data, max_steps=STEPS, global_batch_size=16, seq_length=64, lr=1e-3, output=os.path.join(folder, "job"), save_interval=2, cluster=described,
                                min_nodes=4, on_step=on_step, heartbeat_timeout=1.0, heartbeat_interval=0.1, rejoin_seconds=1.0, metrics_file=os.path.join(folder, "job.jsonl"))
            finally:
                wanted.put(None)

        threading.Thread(target=train).start()
        while change := wanted.get():  # Ray starts nodes in the main thread only
            what, name = change
            if what == "remove":
                cluster.remove_node(nodes.pop(name), allow_graceful=False)
            else:
                nodes[name] = cluster.add_node(num_cpus=1, node_name=name)
        with open(os.path.join(folder, "job.jsonl")) as f:
            lines = [json.loads(line) for line in f]
        rows, moves = [line for line in lines if "loss" in line], [line for line in lines if "devices" in line]
        for change in moves:
            print(f"after step {change['step']}: {', '.join(change['devices'])}; left {change['left']}, joined {change['joined']}, pause {change['pause_seconds']:.2f} s: {change['reason'][:90]}")
        results.append(z.check("losses and joins that were not seen", 3 - len(moves), 0))
        results.append(z.check("missing or repeated steps", sum(row["step"] != i + 1 for i, row in enumerate(rows)) + abs(len(rows) - STEPS), 0))
        results.append(z.check("losses against one device, relative", max(abs(row["loss"] - e) / e for row, e in zip(rows, expected)), LIMIT))
        between = sorted((b - a for a, b in zip(moments, moments[1:])), reverse=True)[:4]
        print("longest times between steps:", ", ".join(f"{p:.2f} s" for p in between))
        results.append(z.check("seconds of the longest pause", max(move["pause_seconds"] for move in moves), PAUSE * z.PATIENCE))
        ray.shutdown()
        cluster.shutdown()
    z.finish(results)


if __name__ == "__main__":
    sys.exit(main())
