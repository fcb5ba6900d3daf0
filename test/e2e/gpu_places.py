"""Checks that every program runs on its GPU, or that the run ends with a message that names the fix: 35 machines of the
fake driver (ZORSE_EMULATOR_GPUS), with GPUs in permuted order, hidden, named, too small or too few, in threads and
in processes.

    gpu_places.py [--quick]     --quick: every third machine

Bundles for real architectures end when the fake driver gets PTX, after the line that prints the GPU of each program.
Bundles for the emulator train.
"""
import itertools
import os
import re
import sys
import tempfile

import cuda
import harness as z

GPUS = {"T4": "Tesla T4,75,15360", "V100": "Tesla V100-SXM2-16GB,70,16384", "A100": "NVIDIA A100-SXM4-40GB,80,40960", "A100-80": "NVIDIA A100-SXM4-80GB,80,81920", "H100": "NVIDIA H100 80GB HBM3,90,81920",
        "P40": "Tesla P40,61,24576", "B300": "NVIDIA B300,103,204800", "2080": "NVIDIA GeForce RTX 2080 Ti,75,11264", "small": "Tesla T4,75,1"}
UUID = "GPU-00000000-0000-0000-0000-0000000000"


def machine(*gpus, real=True):
    """GPUs as "MODEL@BUS", the fastest first."""
    return ";".join(f"{GPUS[model]},{bus}" for model, bus in (g.split("@") for g in gpus)) + (";real" if real else "")


def cluster(folder, name, devices):
    path = os.path.join(folder, name + ".yaml")
    with open(path, "w") as f:
        f.write("name: test\nnodes:\n  - name: here\n    devices:\n" + "".join(f"      - {{ name: {d}, kind: cuda, {keys} }}\n" for d, keys in devices.items()))
    return path


def bundle(folder, name, devices):
    names = list(devices)
    shares = [round(i * 8 / len(names)) for i in range(len(names) + 1)]
    plan = z.plan(folder, name, 8, names, [(0, 8, a, b, d) for a, b, d in zip(shares, shares[1:], names)])
    path = os.path.join(folder, name + ".zorse")
    z.compile(os.path.join(z.SMALL, "gpt.onnx"), path, cluster(folder, name, devices), 8, 32, plan, {"optimizer": "adamw"}, "f32")
    return path


def bundles(folder):
    of = lambda arch, more="": f"arch: {arch}, flops_per_second: 1e13, memory: 8GiB{more}"
    return {
        "A100+T4": bundle(folder, "A100+T4", {"a": of("sm_80"), "t": of("sm_75")}),
        "T4+A100": bundle(folder, "T4+A100", {"t": of("sm_75"), "a": of("sm_80")}),
        "two T4": bundle(folder, "twoT4", {"t": of("sm_75"), "u": of("sm_75")}),
        "named": bundle(folder, "named", {"t": of("sm_75"), "u": of("sm_75", f', gpu: "{UUID}05"')}),
        "P40": bundle(folder, "P40", {"p": of("sm_61")}),
        "B300": bundle(folder, "B300", {"b": of("sm_103")}),
        "emulated": bundle(folder, "emulated", {"g": "arch: emu, flops_per_second: 1e10, memory: 1GiB", "h": "arch: emu, flops_per_second: 1e10, memory: 1GiB"}),
    }


def machines():
    """(name, bundle, GPUs, environment, arguments of the run, GPUs or fragments of the message)"""
    hidden = lambda text: {"CUDA_VISIBLE_DEVICES": text}
    for order in itertools.permutations(["A100@41", "T4@81"]):
        for kind in ("A100+T4", "T4+A100"):
            yield f"{kind} on {order}", kind, machine(*order), {}, (), {"a": "41", "t": "81"}
    for order in itertools.permutations(["H100@01", "A100@41", "T4@81"]):
        yield f"a GPU more, {order}", "A100+T4", machine(*order), {}, (), {"a": "41", "t": "81"}
    yield "the T4's program on an A100, for want of a T4", "A100+T4", machine("A100@01", "A100-80@02"), {}, (), {"a": "01", "t": "02"}
    yield "fastest first by the user's will", "A100+T4", machine("A100@81", "T4@41"), {"CUDA_DEVICE_ORDER": "FASTEST_FIRST", **hidden("0,1")}, (), {"a": "81", "t": "41"}
    yield "numbers count on the bus", "two T4", machine("A100@81", "T4@05", "T4@03"), hidden("0,1"), (), {"t": "03", "u": "05"}
    yield "hidden by number", "two T4", machine("T4@03", "T4@05", "T4@07"), hidden("2,1"), (), {"t": "05", "u": "07"}
    yield "hidden by UUID", "two T4", machine("T4@03", "T4@05", "T4@07"), hidden(f"{UUID}07,{UUID}03"), (), {"t": "03", "u": "07"}
    yield "named", "named", machine("T4@03", "T4@05", "T4@07"), {}, (), {"t": "03", "u": "05"}
    yield "named, the other way round", "named", machine("T4@05", "T4@07"), {}, (), {"t": "07", "u": "05"}
    yield "named and not there", "named", machine("T4@03", "T4@07"), {}, (), ["device 'u' is GPU " + UUID + "05 by the cluster file", "03:00.0", "07:00.0"]
    yield "named and hidden", "named", machine("T4@03", "T4@05", "T4@07"), hidden("0,2"), (), ["device 'u' is GPU", "CUDA_VISIBLE_DEVICES=0,2"]
    yield "too few", "two T4", machine("T4@03"), {}, (), ["devices t, u are 2, and the GPUs that run them are 1", "--share-gpus"]
    yield "too few are visible", "two T4", machine("T4@03", "T4@05"), hidden("0"), (), ["CUDA_VISIBLE_DEVICES=0", "none is left for u"]
    yield "too few, shared", "two T4", machine("T4@03"), {}, ("--share-gpus",), {"t": "03", "u": "03"}
    yield "none is visible", "two T4", machine("T4@03", "T4@05"), hidden(""), (), ["no GPU is found there"]
    yield "none", "two T4", ";real", {}, (), ["no GPU is found there"]
    yield "all are too old", "A100+T4", machine("V100@03", "V100@05"), {}, (), ["for sm_80, this GPU is sm_70", "arch: sm_70", "for sm_75, this GPU is sm_70"]
    yield "one is too old", "A100+T4", machine("T4@03", "T4@05"), {}, (), ["rank 0 (device a", "for sm_80, this GPU is sm_75"]
    yield "smaller than planned", "two T4", machine("T4@03", "small@05"), {}, (), ["the GPUs that run them are 1", "none is left for u"]
    yield "all smaller than planned", "two T4", machine("small@03", "small@05"), {}, (), ["device 't' plans", "give the device less 'memory'"]
    yield "a GPU that is not in the list", "P40", machine("P40@03"), {}, (), {"p": "03"}
    yield "newer code than the GPU's", "B300", machine("H100@03"), {}, (), ["for sm_100, this GPU is sm_90"]
    yield "a newer GPU that is not in the list", "B300", machine("B300@03"), {}, (), {"b": "03"}
    yield "an older bundle", "P40", machine("T4@03"), {}, (), {"p": "03"}
    yield "trained in order of the bus", "emulated", machine("T4@05", "T4@03", real=False), {}, (), {"g": "03", "h": "05", "trains": True}
    yield "trained on the visible GPUs", "emulated", machine("T4@05", "T4@03", "T4@07", real=False), hidden("0,2"), (), {"g": "03", "h": "07", "trains": True}
    yield "trained on one", "emulated", machine("T4@05", real=False), {}, ("--share-gpus",), {"g": "05", "h": "05", "trains": True}


def main():
    os.environ["LD_LIBRARY_PATH"] = cuda.STANDIN + ":" + os.environ.get("LD_LIBRARY_PATH", "")
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    results, data = [], os.path.join(z.SMALL, "gpt.tokens.bin")
    with tempfile.TemporaryDirectory() as folder:
        made = bundles(folder)
        for number, (name, kind, gpus, environment, words, expected) in enumerate(machines()):
            if "--quick" in sys.argv and number % 3:
                continue
            for how in ((), ("--spawn",)) if number % 3 == 0 else ((),):
                before = dict(os.environ)
                os.environ.update({"ZORSE_EMULATOR_GPUS": gpus, **environment})
                code, out, err = z.call("zorse-run", made[kind], "--data", data, "--max-steps", 2, *words, *how, ok=False)
                os.environ.clear()
                os.environ.update(before)
                label = name + (", in processes" if how else "")
                if isinstance(expected, dict):
                    line = next((text for text in out.splitlines() if text.startswith("GPUs: ")), "")
                    places = dict(re.findall(r"(?:^|; )(\w+): [^;]*?0000:(\w\w):00\.0", line.removeprefix("GPUs: ")))
                    good = places == {d: bus for d, bus in expected.items() if d != "trains"} and (code == 0) == ("trains" in expected)
                else:
                    good = code == 1 and all(text in err for text in expected)
                results.append(good)
                print(f"{'ok  ' if good else 'FAIL'} {label}" + ("" if good else f"\n  expected {expected}\n  {code} {out.strip()[-600:]}\n  {err.strip()[-900:]}"), flush=True)
    z.finish(results, f"{sum(results)} of {len(results)} starts on the right GPU, or with a message that names the remedy")


if __name__ == "__main__":
    main()
