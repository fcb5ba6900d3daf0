"""A bundle with two targets runs each device on its own target: two levels of x86-64, by stages and by samples, in
threads and in processes, with the loss of one device. A missing CPU feature is reported by name, and null devices
run without computing and report it.

    targets.py [STEPS]     default 20
"""
import json
import os
import sys
import tempfile

import harness as z
from plan_invariance import BATCH, LENGTH, UNITS

LEVELS = ["x86-64-v2", "x86-64-v3", "x86-64-v4"]


def levels_here():
    with open("/proc/cpuinfo") as f:
        flags = set(next((line for line in f if line.startswith("flags")), "").split())
    return LEVELS[:1 + ("avx2" in flags and "fma" in flags and "bmi2" in flags) + ({"avx2", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"} <= flags)] if "sse4_2" in flags else []


def cluster(folder, name, devices):
    """devices: (name, other settings in the cluster file)"""
    path = os.path.join(folder, name + ".yaml")
    with open(path, "w") as f:
        f.write("name: test\nnodes:\n  - name: here\n    devices:\n")
        for device, more in devices:
            f.write(f"      - {{ name: {device}, flops_per_second: 1e10, memory: 2GiB, threads: 1, {more} }}\n")
    return path


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    here = levels_here()
    if len(here) < 2:
        print("this CPU does not support two levels of x86-64")
        sys.exit(77)
    low, high = here[0], here[1]
    model, data = os.path.join(z.SMALL, "gpt.onnx"), os.path.join(z.SMALL, "gpt.tokens.bin")
    results, worst = [], 0.0

    def expect(name, good, detail=""):
        results.append(bool(good))
        print(f"{'ok  ' if good else 'FAIL'} {name}{'' if good else ': ' + str(detail)[-800:]}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        def made(name, devices, cells, ok=True):
            bundle = os.path.join(folder, name + ".zorse")
            done = z.compile(model, bundle, cluster(folder, name, devices), BATCH, LENGTH, z.plan(folder, name, BATCH, [d for d, _ in devices], cells), ok=ok, extra=("--cpu-arch", high))
            return bundle, done

        def losses(bundle, *more):
            return [m["loss"] for m in z.run(bundle, data, steps, extra=more)]

        one, _ = made("one", [("a", "kind: cpu")], [(0, UNITS, 0, BATCH, "a")])
        expected = losses(one)
        expect("one target: one library", not os.path.exists(os.path.join(one, "functions.1.pb")) and os.listdir(os.path.join(one, "kernels")) == [high])

        two = [("a", f"kind: cpu, arch: {low}"), ("b", f"kind: cpu, arch: {high}")]
        half = UNITS // 2
        shapes = {"stages": [(0, half, 0, BATCH, "a"), (half, UNITS, 0, BATCH, "b")], "samples": [(0, UNITS, 0, BATCH // 2, "a"), (0, UNITS, BATCH // 2, BATCH, "b")]}
        for shape, cells in shapes.items():
            bundle, _ = made(shape, two, cells)
            with open(os.path.join(bundle, "manifest.json")) as f:
                targets = [d["target"] for d in json.load(f)["devices"]]
            expect(f"{shape}: two libraries", sorted(os.listdir(os.path.join(bundle, "kernels"))) == [low, high] and sorted(targets) == [0, 1] and
                   os.path.exists(os.path.join(bundle, "functions.1.pb")), targets)
            for way in ((), ("--spawn",)):
                error = z.relative(losses(bundle, *way), expected)
                worst = max(worst, error)
                results.append(z.check(f"{shape}{' in processes' if way else ''}: loss over {steps} steps", error, 1e-5))

        # Targets are checked per device: if this machine does not support the highest level, only the device with this
        # target is refused.
        if len(here) < len(LEVELS):
            unsupported = LEVELS[len(here)]
            bundle, _ = made("unsupported", [two[0], ("b", f"kind: cpu, arch: {unsupported}")], shapes["stages"])
            for way in ((), ("--spawn",)):
                code, _, said = z.call("zorse-run", bundle, "--data", data, "--max-steps", 1, *way, ok=False)
                expect(f"missing CPU features are refused {' '.join(way)}", code == 1 and unsupported in said and ("device b" in said or "device 'b'" in said) and low not in said, said)
        _, (code, _, said) = made("wrong", [("a", "kind: cpu, arch: x86-64-v9")], [(0, UNITS, 0, BATCH, "a")], ok=False)
        expect("an unknown architecture is named with those there are", code == 1 and "x86-64-v9" in said and "x86-64-v3" in said, said)
        _, (code, _, said) = made("empty", [("a", "kind: null")], [(0, UNITS, 0, BATCH, "a")], ok=False)
        expect("an empty kind does not give a null device", code == 1 and "in quotes" in said, said)
        bundle, _ = made("null", [("a", "kind: cpu"), ("n", 'kind: "null"')], [(0, half, 0, BATCH, "a"), (half, UNITS, 0, BATCH, "n")])
        code, _, said = z.call("zorse-run", bundle, "--data", data, "--max-steps", 2, "--quiet", ok=False)
        expect("a null device runs, and its results are reported as meaningless", code == 0 and "device n" in said and "meaningless" in said, said)
    z.finish(results, f"two targets ({low}, {high}) train to the loss of one device within {worst:.2g} (limit 1e-05) over {steps} steps")


if __name__ == "__main__":
    main()
