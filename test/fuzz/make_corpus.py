"""Writes the seed corpus of test/fuzz: small, valid inputs of every reader.

Does not change the inputs that fuzzing found; their names describe the finding.

    make_corpus.py BIN        BIN: the directory with zorse-compile (build/release/bin)
"""
import json
import os
import pickle
import struct
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SMALL = os.path.join(HERE, "..", "..", "models", "small")


def write(reader, name, data):
    folder = os.path.join(HERE, "corpus", reader)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def clusters():
    write("cluster", "two-nodes.yaml", """name: two
nodes:
  - name: n0
    devices:
      - { name: a, kind: cpu, flops_per_second: 2e9, memory: 1GiB, threads: 2 }
  - name: n1
    devices:
      - { name: b, type: T4, count: 2 }
links:
  intra_node: { bandwidth: 10 GB/s, latency: 2us }
  inter_node: { bandwidth: 1 Gbit/s, latency: 0.1 ms }
""")
    write("cluster", "sites.yaml", """name: sites
currency: EUR
templates:
  devices: {fast: {type: A100-40, reserved_memory: 3 GB, price: 1.5}}
  nodes:
    four:
      site: east
      device_link: {bandwidth: 250 GB/s, latency: 3 us}
      bus: {bandwidth: 400 GB/s}
      nic: {bandwidth: 50 Gbit/s, latency: 5 us, per_flow_bandwidth: 2.4 GB/s}
      host_memory: 512 GiB
      pcie: 20 GB/s
      nvme: {size: 2 TB, bandwidth: 3 GB/s}
      price: 2
      devices: [{name: a, template: fast, count: 2}]
sites:
  - {name: east, fabric: {bandwidth: 1 Tbit/s, latency: 20 us}, uplink: {bandwidth: 10 Gbit/s, per_flow_bandwidth: 1 GB/s}, egress_price: 0.05}
  - {name: west}
  - {name: south}
nodes:
  - {name: p, template: four, count: 2}
  - {name: q, site: west, devices: [{name: v, type: V100-16, flops_per_second: {f16: 80 TFLOP/s}, half_peak_rows: 70, launch_overhead: 8 us, memory_bandwidth: 800 GB/s}]}
  - {name: r, site: south, devices: [{name: c, type: cpu-thread, threads: 8, memory: 16 GiB}]}
links:
  inter_node: {bandwidth: 25 Gbit/s, latency: 90 us, per_flow_bandwidth: 2 GB/s}
  inter_site: {bandwidth: 1 GB/s, latency: 30 ms, per_flow_bandwidth: 100 MB/s}
  site_pairs:
    - {sites: [west, south], bandwidth: 2 GB/s, latency: 1 ms, per_flow_bandwidth: unlimited}
""")
    write("cluster", "anchors.yaml", """nodes:
  - name: n0
    devices: &d
      - &a {name: a, type: H200}
      - name: "b"
        kind: 'sim'
        flops_per_second: 1 TFLOP/s
  - {name: n1, devices: [{name: c, flops_per_second: 1 GFLOP/s, memory: 100 MB}]}
""")


def profiles():
    points = [{"batch_size": 1, "forward": 0.1, "backward": 0.2, "input_gradients": 0.12, "weight_gradients": 0.08, "memory": 77}, {"batch_size": 4, "forward": 0.4}]
    write("profile", "everything.json", json.dumps({
        "format": 2, "model": "x", "comment": "c",
        "devices": [{"device": "T4", "memory": 1000, "update": {"per_element": 1e-9, "fixed": 1e-5}, "norm": {"per_element": 2e-9}, "copy": {"per_byte": 3e-9}, "load": {"per_byte": 4e-9},
                     "unit_classes": {"class": points, "class (2)": [{"tensor_parallel_size": 1, "measurements": points}, {"tensor_parallel_size": 2, "measurements": points[:1]}], "nothing": []}}, {"device": "a"}],
        "links": [{"from": "n0", "to": "n1", "bandwidth": 1e9, "latency": 1e-4, "per_flow_bandwidth": 2e8}, {"from": "a", "to": "c", "bandwidth": 5e9}, {"from": "t4:0", "to": "t4:1", "bandwidth": 5e9}]}))


def plans():
    cells = [{"units": [u, u + 2], "samples": [s, s + 2], "device": d} for u, d in ((0, "a"), (2, "b")) for s in (0, 2)]
    write("plan", "cells.json", json.dumps({"format": 2, "global_batch_size": 4, "devices": ["a", "b"], "cells": cells, "schedule": "gpipe"}))
    write("plan", "stages.json", json.dumps({
        "global_batch_size": 8, "devices": [{"name": "a", "flops_per_second": 1e9, "memory": 1 << 30, "node": "n"}, "b", "c"],
        "stages": [{"units": [0, 3], "devices": [{"device": "a", "samples": 8, "micro_batch_size": 3}]},
                   {"units": [3, 4], "devices": [{"device": "b", "samples": 5}, {"device": "c", "samples": 3}], "micro_batch_size": 2}],
        "links": {"intra_node": {"bandwidth": 1e9, "latency": 1e-5}}}))
    write("plan", "pipelines.json", json.dumps({
        "global_batch_size": 4, "devices": ["a", "b", "c"], "backward": "same", "activations": "keep",
        "pipelines": [{"samples": [0, 3], "stages": [{"units": [0, 2], "devices": ["a"]}, {"units": [2, 4], "devices": ["b"]}]},
                      {"samples": [3, 4], "stages": [{"units": [0, 4], "devices": [{"device": "c", "share": 2}]}]}]}))
    write("plan", "owners.json", json.dumps({
        "global_batch_size": 4, "devices": ["a", "b"], "cells": cells,
        "state": {"default_sharding": "equal", "tier": "device",
                  "groups": [{"group": 0, "owners": [{"device": "a", "fraction": 0.3}, {"device": "b", "fraction": 0.7}]}, {"group": "group1", "owners": ["b"]},
                             {"group": "*", "owners": ["a"]}]}}))
    write("plan", "order.json", json.dumps({
        "global_batch_size": 4, "devices": ["a", "b"], "cells": cells, "durations": {"forward": [1, 1, 2, 2], "backward": [2, 2, 4, 4]},
        "schedule": {"order": {"a": ["F0", "F1", "B0", "B1"], "b": ["F2", "B2", "F3", "B3"]}}}) + " // a comment\n")
    write("plan", "split.json", json.dumps({
        "global_batch_size": 4, "devices": ["a", "b"], "cells": cells, "split_backward": True, "durations": {"forward": [1, 1, 2, 2], "backward": [1, 1, 2, 2], "weights": [1, 1, 2, 2]},
        "schedule": {"order": {"a": ["F0", "F1", "B0", "B1", "W1", "W0"], "b": ["F2", "B2", "F3", "B3", "W2", "W3"]}}}))


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def fields(data):
    """(number, wire type, value) of each field of a message."""
    def varint(at):
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                return value, at
    at = 0
    while at < len(data):
        key, at = varint(at)
        if key & 7 == 0:
            value, at = varint(at)
        else:
            size, at = varint(at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
            value, at = data[at:at + size], at + size
        yield key >> 3, key & 7, value


def with_few_launches(library):
    """A FunctionLibrary in which only the first function has launches: neither checks nor the verifier read them, and inputs should be small."""
    out, first = b"", True
    for number, wire, value in fields(library):
        if number == 1:
            function = b""
            for at, kind, what in fields(value):
                if at == 3 and not first:
                    continue
                first = first and at != 3
                function += varint(at << 3 | kind) + (varint(what) if kind == 0 else varint(len(what)) + what if kind == 2 else what)
            value = function
        out += field(number, value) if wire == 2 else varint(number << 3 | wire) + (varint(value) if wire == 0 else value)
    return out


def read(path):
    with open(path, "rb") as f:
        return f.read()


def pack(folder):
    """A bundle as a BundleInput of fuzz.proto."""
    manifest = json.loads(read(os.path.join(folder, "manifest.json")))
    manifest["files"] = {name: "@" + name for name in manifest["files"]}
    out = field(1, json.dumps(manifest).encode())
    for number, name in ((2, "plan.json"), (3, "cluster.yaml"), (4, "weights.json"), (5, "summary.pb"), (6, "functions.pb")):
        data = read(os.path.join(folder, name))
        data = with_few_launches(data) if name == "functions.pb" else data
        out += field(number, json.dumps(json.loads(data)).encode() if name.endswith(".json") else data)
    for i in range(len(manifest["devices"])):
        out += field(7, read(os.path.join(folder, f"programs/{i}.pb")))
    for name in manifest["files"]:
        if name.startswith("kernels/") or name.endswith(".safetensors"):
            out += field(8, field(1, name.encode()) + field(2, b"bytes"))
    return out


def bundles(binaries):
    with tempfile.TemporaryDirectory() as folder:
        cluster = os.path.join(folder, "cluster.yaml")
        with open(cluster, "w") as f:
            f.write("nodes: [{name: here, devices: [{name: a, kind: cpu, flops_per_second: 1e9}, {name: b, kind: cpu, flops_per_second: 1e9, threads: 2}]}]\n")
        for name, model, batch, plan in (
                ("one-device", "mlp-tiny", 2, {"cells": [(0, None, 0, 2, "a")]}),
                ("two-stages", "mlp-tiny", 2, {"cells": [(0, 1, 0, 1, "a"), (0, 1, 1, 2, "a"), (1, None, 0, 2, "b")]}),
                ("shared", "mlp-tiny", 3, {"cells": [(0, None, 0, 2, "a"), (0, None, 2, 3, "b")]}),
                ("two-terms", "zoo/two-terms", 2, {"cells": [(0, None, 0, 1, "a"), (0, None, 1, 2, "b")]})):
            units = 1
            while True:  # the first error contains the number of units of the model
                path, out = os.path.join(folder, "plan.json"), os.path.join(folder, "out.zorse")
                cells = [{"units": [u, units if v is None else v], "samples": [s, t], "device": d} for u, v, s, t, d in plan["cells"]]
                with open(path, "w") as f:
                    json.dump({"global_batch_size": batch, "devices": ["a", "b"], "cells": cells}, f)
                done = subprocess.run([os.path.join(binaries, "zorse-compile"), os.path.join(SMALL, model + ".onnx"), "--cluster", cluster, "--plan", path, "--global-batch-size", str(batch),
                                       *(("--seq-length", "4") if model == "mlp-tiny" else ()), "--quiet", "--optimizer", "sgd", "-o", out], capture_output=True, text=True)
                if done.returncode == 0:
                    break
                units += 1
                if units > 40:
                    sys.exit(f"{model}: {done.stderr}")
            packed = pack(out)
            if name != "shared":  # its size is that of two other bundles
                write("bundle", name, packed)
            # The fields that this target reads: plan, summary, bodies, programs.
            write("programs", name, b"".join(field(number, value) for number, _, value in fields(packed) if number in (2, 5, 6, 7)))


def tensors():
    def safetensors(tensors, metadata=None):
        header, data = {}, b""
        if metadata:
            header["__metadata__"] = metadata
        for name, kind, array in tensors:
            header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}
            data += array.tobytes()
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        return struct.pack("<Q", len(text)) + text + data

    write("safetensors", "good", safetensors([("w", "F32", np.arange(4, dtype=np.float32))]))
    write("safetensors", "types", safetensors([("w", "F64", np.arange(4, dtype=np.float64)), ("extra", "I8", np.zeros((2, 0), np.int8)), ("b", "BOOL", np.ones(3, bool)),
                                               ("h", "BF16", np.zeros((1, 2), np.uint16))], {"format": "pt"}))
    write("safetensors", "empty", safetensors([]))


def data():
    header = np.zeros(256, np.int32)
    for name, magic, kind in (("llm-c-16", 20240520, np.uint16), ("llm-c-32", 20240801, np.uint32)):
        tokens = np.arange(40, dtype=kind) * 11
        header[:3] = magic, 1, len(tokens)
        write("tokens", name, header.tobytes() + tokens.tobytes())
    for kind in (np.uint16, np.uint32, np.int64):
        write("tokens", kind.__name__, np.arange(30, dtype=kind).tobytes())
    for protocol in range(6):
        write("tokens", f"pickle-{protocol}", pickle.dumps({"ids": list(range(30)), "name": "a"}, protocol))
    write("tokens", "text", "Any other file is read as bytes.\n")
    for name, array in (("ids", np.arange(20).reshape(5, 4)), ("labels", np.full((5, 4), -100, np.int32)), ("pixels", np.ones((4, 2, 3), np.float32)),
                        ("mask", np.ones((4, 4), bool)), ("half", np.ones(6, np.float16)), ("bytes", np.zeros((7, 4), np.uint8))):
        path = os.path.join(tempfile.gettempdir(), f"zorse-corpus-{os.getpid()}.npy")
        np.save(path, array)
        write("npy", name, read(path))
        os.unlink(path)


def number(at, value):
    return varint(at << 3) + varint(value & ((1 << 64) - 1))


def events(world, *list):
    """A ControlInput. An event is (rank, field of Event, contents)."""
    out = number(1, world - 1)
    for rank, at, value in list:
        out += field(2, number(1, rank) + (field(at, value) if isinstance(value, bytes) else number(at, value)))
    return out


def control():
    def message(at, body=b""):
        return field(at, body)

    joins = [(rank, 2, message(3, field(1, b"job") + number(2, 1) + number(3, rank) + number(4, 3) + field(5, b"cpu") + field(6, b"m" * 32))) for rank in range(3)]
    heartbeat = message(6, field(1, number(1, 7) + number(2, 1) + field(3, b"is in entry 17 (receive from b) of step 4") + number(4, 4) + number(5, 17)))
    failed = message(10, number(1, 0) + number(3, 1) + number(4, 2) + field(5, b"b") + field(6, b"the peer closed the connection") + field(7, b"instruction 3") + number(8, 2))
    died = message(10, number(3, 2) + number(4, 0xffffffff) + field(6, b"disk full") + number(8, 1))
    write("control", "exchange", events(3, *joins, (0, 4, 100), *[(r, 2, message(7, field(1, b"hardware") + field(2, b"value"))) for r in range(3)], (1, 2, heartbeat), (2, 4, 300),
                                        (1, 2, message(9, field(1, b"a line"))), (0, 2, message(14)), *[(r, 2, message(16, number(1, 5 + r))) for r in range(3)],
                                        *[(r, 2, message(18, number(1, 7))) for r in range(3)]))
    write("control", "failure", events(3, *joins, (1, 2, heartbeat), (1, 2, failed), (0, 4, 50), (2, 2, died), (0, 4, 500), (0, 2, message(13)), (1, 2, message(13)), (2, 5, 1), (0, 4, 2000)))
    write("control", "silence", events(3, *joins, (0, 4, 9000), (1, 2, heartbeat), (0, 4, 9000), (2, 6, 0), (1, 5, 1), (0, 2, message(11, varint(1 << 3 | 1) + struct.pack("<d", 12.5))), (0, 7, 1)))
    greeting = message(1, field(1, b"zorse control") + number(2, 1) + number(3, 1) + field(4, b"n" * 32))
    frames = b"".join(struct.pack(">I", len(f)) + f for f in (greeting, message(2, field(1, b"p" * 32)), joins[0][2],
                                                               message(4, field(1, b"job") + number(2, 1) + number(4, 3) + b"\x29" + struct.pack("<d", 0.25) + b"\x31" + struct.pack("<d", 10) +
                                                                       field(12, b"m" * 32)), message(5, number(1, 2) + field(2, b"other")),
                                                               message(8, field(1, b"x") + field(3, b"a") + field(3, b"b")), message(12, failed[2:]), message(17, number(1, 4)), message(19)))
    write("control", "frames", events(3, (0, 3, frames)))
    facts = {"host": "h 1", "processor": "x86-64-v3", "cores": 4, "memory": 1 << 34, "bundle": "0123", "run": "steps=1"}
    write("control", "facts", events(2, (0, 3, json.dumps(facts).encode()), (1, 3, bytes(64))))


def snapshots():
    head = b'{"w@0:4":{"dtype":"F32","shape":[4],"data_offsets":[8,24]}}'
    head = struct.pack("<Q", len(head)) + head + bytes(8)
    slices = [{"parameter": 0, "moment": m, "begin": 0, "end": 4, "type": "F32", "offset": len(head) + 16 * i, "xxh64": "0" * 16} for i, m in enumerate((-1, 0))]
    training = {"optimizer": "adamw", "learning_rate": 1e-3, "momentum": 0, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1, "clip_norm": 1,
                "schedule": "cosine", "warmup_steps": 2, "total_steps": 9, "final_ratio": 0.1, "seed": 1, "nesterov": False}
    index = {"format": "zorse checkpoint", "version": 2, "step": 3, "generation": 2, "consumed_samples": 12, "optimizer_step": 3, "precision": "f32", "moments": 1,
             "run_config": {"model": "m", "batch": 4, "sequence": 4, "seed": 1, "shuffle": None, "data": "d", "samples_per_epoch": 9, "steps": 9, "training": training},
             "parameters": [{"name": "w", "type": "F32", "shape": [2, 2], "permutation": [1, 0]},
                            {"name": "table", "type": "I64", "shape": [3], "frozen": {"xxh64": "0123456789abcdef", "file": "m.onnx", "offset": 8, "bytes": 24, "type": "I64"}}],
             "files": [{"file": "a.safetensors", "device": "a", "bytes": len(head) + 32, "header_bytes": len(head), "header_xxh64": "0" * 16, "shards": slices}]}
    contents = head + np.arange(8, dtype=np.float32).tobytes()
    acknowledgement = {"files": [{"device": 0, "head": "0" * 16, "slices": ["1" * 16, "2" * 16], "optimizer_step": 3}], "frozen": [{"parameter": 1, "hash": "3" * 16}]}

    def pack_one(index, files, token, acknowledgement):
        out = field(1, json.dumps(index).encode())
        for name, data in files:
            out += field(2, field(1, name) + field(2, data))
        return out + field(4, token) + field(5, json.dumps(acknowledgement).encode())

    write("snapshot", "one-file", pack_one(index, [(b"a.safetensors", contents)], b"2 0123abcd\n", acknowledgement))
    two = json.loads(json.dumps(index))
    two["moments"], two["run_config"]["shuffle"] = 0, 7
    two["files"] = [{"file": n + ".safetensors", "device": n, "bytes": len(head) + 8, "header_bytes": len(head), "header_xxh64": "0" * 16,
                     "shards": [dict(slices[0], begin=b, end=b + 2)]} for n, b in (("a", 0), ("b", 2))]
    write("snapshot", "two-files", pack_one(two, [(b"a.safetensors", contents[:len(head) + 8]), (b"b.safetensors", contents[:len(head) + 8])], b"7\n",
                                            {"error": "no space", "superseded": False}))


def launches():
    for name, text in (
            ("zorse", "ZORSE_RANK=2 ZORSE_WORLD_SIZE=4 ZORSE_LOCAL_RANK=1 ZORSE_STORE=node1:29600,[::1]:29601-29603 ZORSE_GENERATION=7 ZORSE_JOB=mine"),
            ("torchrun", "GROUP_RANK=0 GROUP_WORLD_SIZE=1 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=35035 RANK=1 WORLD_SIZE=2 TORCHELASTIC_RESTART_COUNT=0 "
                         "TORCHELASTIC_RUN_ID=f3"),
            ("mpirun", "OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=3 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=3 PMIX_NAMESPACE=14 PMIX_RANK=1 PMIX_HOSTNAME=vm"),
            ("srun", "SLURM_JOB_ID=1 SLURM_JOB_NODELIST=zn[1-2] SLURM_JOB_NUM_NODES=2 SLURM_LOCALID=2 SLURM_NODEID=0 SLURM_NTASKS=5 SLURM_PROCID=2 SLURM_STEP_ID=0 "
                     "SLURM_STEP_NODELIST=rack[0-1]n[01-02,7] SLURM_STEP_NUM_TASKS=5 SLURM_STEP_TASKS_PER_NODE=4,1"),
            ("pmi", "PMI_JOBID=1.0 PMI_RANK=2 PMI_SIZE=5 SLURM_LOCALID=1 SLURM_JOB_ID=1 SLURM_STEP_NODELIST=a"),
            ("pet", "PET_NNODES=2 PET_NODE_RANK=1 PET_NPROC_PER_NODE=4 PET_MASTER_ADDR=job-0.job PET_MASTER_PORT=29400"),
            ("lws", "LWS_LEADER_ADDRESS=gpt-0.gpt.default LWS_GROUP_SIZE=3 LWS_WORKER_INDEX=2"),
            ("jobset", "JOB_COMPLETION_INDEX=1 NNODES=2 JOBSET_NAME=gpt REPLICATED_JOB_NAME=ranks JOBSET_RESTART_ATTEMPT=3")):
        write("launch", name, text.replace(" ", "\n") + "\n")


def main():
    control()
    snapshots()
    launches()
    clusters()
    profiles()
    plans()
    tensors()
    data()
    bundles(sys.argv[1])


if __name__ == "__main__":
    main()
