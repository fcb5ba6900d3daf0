"""GPUs that transfer directly, through the fake NCCL: results are bit-identical to local and Gloo transports, in one
process and in several. Also checks the fallbacks to host-staged transfers.

    direct.py [--quick] [COUNT]          COUNT random plans of 4 emulated GPUs with
                                         uneven shards, some with a CPU; default 24, --quick: 3
    direct.py --fall-back                different NCCL versions, two devices on one GPU, a self-test with wrong bytes

Every plan runs with direct transfers in threads and in processes (threads with random stream delays), and staged
through host memory in threads (local transport) and in processes (Gloo). Losses, norms and the checkpoint must be
byte-identical.
"""
import os
import random
import re
import sys
import tempfile

import cuda
import harness as z

UNITS, LENGTH, STEPS = 8, 8, 3


def random_plan(seed):
    """(batch, devices, cells, more): every device has cells, and shares of state that match no other division."""
    draw = random.Random(seed)
    devices = ["g0", "g1", "g2", "g3"] + (["c0"] if seed % 5 == 4 else [])
    batch = draw.choice((6, 7, 8, 9))
    if seed % 4 == 2:  # tensor parallelism: two GPUs divide all units, one or two others do, too
        groups = [["g0", "g1"], ["g2", "g3"]] if seed % 8 == 2 else [["g0", "g1"], ["g2"], ["g3"]]
        ends = [0, *sorted(draw.sample(range(1, batch), len(groups) - 1)), batch]
        return batch, devices, [(0, UNITS, a, b, f"t{i}") for i, (a, b) in enumerate(zip(ends, ends[1:]))], {"groups": [{"name": f"t{i}", "devices": of} for i, of in enumerate(groups)]}
    cuts = sorted(draw.sample(range(1, UNITS), draw.randint(0, 2)))
    cells = []
    stages = list(zip([0] + cuts, cuts + [UNITS]))
    parts = [devices[i::len(stages)] for i in range(len(stages))]
    for (begin, end), members in zip(stages, parts):
        ends = sorted(draw.sample(range(1, batch), len(members) - 1))
        for first, last, device in zip([0] + ends, ends + [batch], members):
            cells.append((begin, end, first, last, device))
    more = {"split_backward": True} if seed % 3 == 0 else {}
    if seed % 2:
        shares = [draw.randint(0, 40) for _ in devices]
        shares[-1] += 1
        more["state"] = {"groups": [{"group": "*", "owners": [{"device": d, "fraction": s / sum(shares)} for d, s in zip(devices, shares)]}]}
    return batch, devices, cells, more


def cluster_of(folder, seed, devices):
    """One node or, for odd seeds, two, between which gradients travel as bf16."""
    if seed % 2 == 0:
        return cuda.cluster(folder, devices), {}
    path = os.path.join(folder, "nodes.yaml")
    with open(path, "w") as f:
        f.write("name: test\nnodes:\n")
        for name, members in (("here", devices[:2]), ("there", devices[2:])):
            f.write(f"  - name: {name}\n    devices:\n")
            for d in members:
                kind = "kind: cuda, arch: emu" if d.startswith("g") else "kind: cpu, threads: 1"
                f.write(f"      - {{ name: {d}, {kind}, flops_per_second: 1e10, memory: 2GiB }}\n")
    return path, {"gradient_wire": "bf16"}


def compile_plan(folder, seed):
    batch, devices, cells, more = random_plan(seed)
    name, precision = ("gpt", "llama")[seed % 2], ("f32", "bf16", "f16")[seed % 3]
    bundle = os.path.join(folder, f"{seed}.zorse")
    cluster, wire = cluster_of(folder, seed, devices)
    plan = z.plan(folder, f"p{seed}", batch, devices, cells, **more, **wire)
    _, _, said = z.compile(os.path.join(z.SMALL, name + ".onnx"), bundle, cluster, batch, LENGTH, plan, {"optimizer": "adamw", "lr": "1e-3", "max-grad-norm": "1.0"}, precision)
    if not os.path.isdir(os.path.join(bundle, "host_staged")):
        raise z.Failure(f"plan {seed}: nothing is direct: {said}")
    return bundle, os.path.join(z.SMALL, name + ".bf16.tokens.bin"), f"{name}, {precision}, {len(devices)} devices, batch {batch}" + (", bf16 between two nodes" if wire else "")


def outcome(folder, bundle, data, *words, ok=True):
    """(what a run wrote, what it printed)"""
    metrics, checkpoint = os.path.join(folder, "metrics.jsonl"), os.path.join(folder, "checkpoint.safetensors")
    code, out, err = z.call("zorse-run", bundle, "--data", data, "--max-steps", STEPS, "--seed", 3, "--metrics-file", metrics, "--save-weights", checkpoint, *words, ok=ok)
    if code:
        return code, out + err
    import json
    with open(metrics) as f:
        steps = [{k: v for k, v in json.loads(line).items() if k in ("step", "loss", "grad_norm", "skipped")} for line in f]
    with open(checkpoint, "rb") as f:
        return (steps, f.read()), out + err


def plans(count):
    results = []
    for seed in range(count):
        with tempfile.TemporaryDirectory() as folder:
            bundle, data, name = compile_plan(folder, seed)
            os.environ.pop("ZORSE_EMULATOR_DELAYS", None)
            expected, said = outcome(folder, bundle, data, "--in-process", "--host-staged")
            wrong = [] if "staged through host memory" in said else ["not staged"]
            for how, words, delays in (("threads", ["--in-process"], seed + 1), ("processes", ["--spawn"], None), ("processes, staged through the host", ["--spawn", "--host-staged"], None)):
                if delays is not None:
                    os.environ["ZORSE_EMULATOR_DELAYS"] = str(delays)
                else:
                    os.environ.pop("ZORSE_EMULATOR_DELAYS", None)
                found, said = outcome(folder, bundle, data, *words, ok=False)
                if found != expected:
                    wrong.append(how + (": " + said.strip() if isinstance(found, int) else ": other bits"))
                elif ("exchange directly" in said) != ("--host-staged" not in words):
                    wrong.append(how + ": did not say how GPUs exchange")
            print(f"{'FAIL' if wrong else 'ok  '} plan {seed}: {name}" + (": " + "; ".join(wrong) if wrong else ""), flush=True)
            results.append(not wrong)
    z.finish(results, "random plans of four and more devices: direct in threads and in processes, local and Gloo leave the same bytes")


def fall_back():
    results = []

    def check(name, good, said):
        print(f"{'ok  ' if good else 'FAIL'} {name}: {said.strip().splitlines()[0] if said.strip() else ''}", flush=True)
        results.append(bool(good))

    with tempfile.TemporaryDirectory() as folder:
        bundle, data, _ = compile_plan(folder, 1)
        expected, _ = outcome(folder, bundle, data, "--in-process")
        warning = r"(\[g0\] )?warning: GPU transfers are staged through host memory: .*; a step is predicted to take [\d.e+-]+ ms instead of [\d.e+-]+ ms"
        os.environ["ZORSE_NCCL_VERSION"] = "22803,22105,22803"
        found, said = outcome(folder, bundle, data, "--spawn", ok=False)
        line = next((l for l in said.splitlines() if re.match(warning, l)), "")
        check("versions differ", found == expected and "rank 0 (device g0" in line and "NCCL 2.28.3" in line and "rank 1 (device g1" in line and "2.21.5" in line, line or said)
        os.environ["ZORSE_NCCL_VERSION"] = "21000"
        found, said = outcome(folder, bundle, data, "--in-process", ok=False)
        line = next((l for l in said.splitlines() if re.match(warning, l)), "")
        check("a version that is too old", found == expected and "NCCL 2.10.0 is too old" in line, line or said)
        del os.environ["ZORSE_NCCL_VERSION"]
        os.environ["ZORSE_EMULATOR_DEVICES"] = "3"
        for words in (["--in-process"], ["--spawn"]):
            found, said = outcome(folder, bundle, data, *words, "--share-gpus", ok=False)
            line = next((l for l in said.splitlines() if re.match(warning, l)), "")
            check("one GPU twice, " + words[0], found == expected and "share the GPU" in line and "device_to_device: false" in line, line or said)
        os.environ["ZORSE_EMULATOR_DEVICES"] = "8"
        for fault, words in (("wrong@0:2", ["--in-process"]), ("wrong@1:1", ["--spawn"])):
            os.environ["ZORSE_NCCL_FAULT"] = fault
            found, said = outcome(folder, bundle, data, *words, ok=False)
            check(f"a self-test finds wrong bytes, {words[0]}", isinstance(found, int) and "self-test of GPUs g0, g1, g2, g3" in said and "NCCL_ALGO=Ring NCCL_PROTO=Simple" in said, said)
        del os.environ["ZORSE_NCCL_FAULT"]
        quiet, said = outcome(folder, bundle, data, "--in-process", "--throttle", "g1=0.5", ok=False)
        check("a GPU that is throttled", quiet == expected and "is throttled" in said, said)
    z.finish(results, "ways back: versions that differ, too old, one GPU twice and a throttled GPU give a warning with cost and the same bytes; wrong bytes in the self-test an error that names the group")


def main():
    if not os.path.exists(os.path.join(cuda.STANDIN, "libnccl.so.2")):
        raise z.Failure(f"{cuda.STANDIN} has no libnccl.so.2: build the target zorse_standin_nccl")
    os.environ["LD_LIBRARY_PATH"] = cuda.STANDIN + ":" + os.environ.get("LD_LIBRARY_PATH", "")
    os.environ["ZORSE_EMULATOR_DEVICES"] = "8"
    if "--fall-back" in sys.argv:
        return fall_back()
    plans(int(next((w for w in sys.argv[1:] if w.isdigit()), 3 if "--quick" in sys.argv else 24)))


if __name__ == "__main__":
    main()
