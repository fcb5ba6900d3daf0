"""Predicted times of GPUs without measurements: from ONNX, from a bundle, for several architectures, together with
CPUs; and the report's statement about them.
"""
import json
import os
import tempfile

import harness as z

results = []


def plan(folder, model, devices, *words):
    cluster, report = os.path.join(folder, "cluster.yaml"), os.path.join(folder, "report.json")
    with open(cluster, "w") as f:
        f.write("name: c\nnodes:\n  - name: n\n    devices:\n" + "".join(f"      - {{{d}}}\n" for d in devices))
    code, out, err = z.call("zorse-plan", model, "--cluster", cluster, "--global-batch-size", 16, "--json", report, *words, ok=False)
    if code:
        raise z.Failure(f"zorse-plan ended with {code}: {err}")
    with open(report) as f:
        return json.load(f), out


def check(what, good):
    results.append(bool(good))
    print(f"{'ok  ' if good else 'FAIL'} {what}")


def main():
    gpt, sequence = os.path.join(z.SMALL, "gpt.onnx"), ["--seq-length", "64"]
    with tempfile.TemporaryDirectory() as folder:
        a100, _ = plan(folder, gpt, ["name: a, type: A100-80"], *sequence)
        check(f"an A100 is modeled: {a100['time_sources']}", a100["time_sources"][0].startswith("A100-80: modeled: products at most 17.55 TFLOP/s (0.90 of the vendor's 19.5)"))
        t4, text = plan(folder, gpt, ["name: t, type: T4"], *sequence)
        check("a T4 is slower", t4["step_seconds"] > a100["step_seconds"])
        check("the report states it, and the fix", "times           T4: modeled" in text and "measure them with zorse-profile" in text)
        eager, _ = plan(folder, gpt, ["name: a, type: A100-80, execution_mode: eager"], *sequence)
        check("eager takes 1.5 times the time", 1.4 < eager["step_seconds"] / a100["step_seconds"] <= 1.51)
        roof, _ = plan(folder, gpt, ["name: a, type: A100-80, half_peak_rows: 100"], *sequence)
        check(f"half_peak_rows keeps the roofline: {roof['time_sources']}", "a roofline of 17.55 TFLOP/s (half of it at 100 rows)" in roof["time_sources"][0])
        mixed, _ = plan(folder, gpt, ["name: a, type: A100-80", "name: v, type: V100-32", "name: c, kind: cpu, flops_per_second: 40 GFLOP/s"], *sequence)
        check(f"each type in use has its line: {[t.split(':')[0] for t in mixed['time_sources']]}", all(t.split(":")[0] in ("A100-80", "V100-32", "cpu") for t in mixed["time_sources"]))
        unknown, _ = plan(folder, gpt, ["name: g, kind: cuda, arch: sm_80, flops_per_second: 20 TFLOP/s, memory_bandwidth: 1 TB/s, sm_count: 60"], *sequence)
        check("sm_count makes a model of a GPU that is in no table", "modeled: products at most 20 TFLOP/s in waves of tiles on 60" in unknown["time_sources"][0])

        # A bundle's summary lists the launches of its bodies, also if it is compiled for simulation only.
        for words in ([], ["--simulate-only"]):
            out = os.path.join(folder, "gpt.zorse" + "".join(words))
            plan(folder, gpt, ["name: a, type: A100-80"], *sequence)
            z.call("zorse-compile", gpt, "--cluster", os.path.join(folder, "cluster.yaml"), *sequence, "--global-batch-size", 16, "--quiet", *words, "-o", out)
            again, _ = plan(folder, out, ["name: a, type: A100-80"])
            check(f"a bundle {' '.join(words)} is planned as its model is", abs(again["step_seconds"] / a100["step_seconds"] - 1) < 1e-6)
        # For a model that was never compiled for GPUs, the report states the basis of its estimate.
        plan(folder, gpt, ["name: c, kind: cpu, flops_per_second: 40 GFLOP/s"], *sequence)
        z.call("zorse-compile", gpt, "--cluster", os.path.join(folder, "cluster.yaml"), *sequence, "--global-batch-size", 16, "--quiet", "-o", os.path.join(folder, "cpu.zorse"))
        cpu, _ = plan(folder, os.path.join(folder, "cpu.zorse"), ["name: a, type: A100-80"])
        check(f"a bundle for CPUs only: {cpu['time_sources']}", "a roofline" in cpu["time_sources"][0])
    z.finish(results)


if __name__ == "__main__":
    main()
