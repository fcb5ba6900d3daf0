"""zorse-run --simulate and --throttle from the command line: options, outputs, bundles without weights, wrong options."""
import json
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import harness as z

results = []


def expect(what, good):
    print(f"{'ok  ' if good else 'FAIL'} {what}", flush=True)
    results.append(good)


with tempfile.TemporaryDirectory() as folder:
    bundle, figures = os.path.join(folder, "gpt.zorse"), os.path.join(folder, "figures.json")
    cluster, sequence = z.cluster(folder, [("a", 1e10), ("b", 5e9)]), 64
    _, _, text = z.call("zorse-compile", os.path.join(z.SMALL, "gpt.onnx"), "--cluster", cluster, "--seq-length", sequence, "--global-batch-size", 8, "--compile-to=lower")
    units = int(text.split(" units of")[0].split()[-1])
    cells = [(a, b, s, s + 4, d) for a, b, d in ((0, units // 2, "a"), (units // 2, units, "b")) for s in (0, 4)]
    z.compile(os.path.join(z.SMALL, "gpt.onnx"), bundle, cluster, 8, sequence, z.plan(folder, "two", 8, "ab", cells, schedule="1f1b"))

    def simulate(*words, ok=True):
        return z.call("zorse-run", bundle, "--simulate", *words, ok=ok)

    _, out, _ = simulate("--json", figures)
    with open(figures) as f:
        plain = json.load(f)
    expect("the table names devices, the critical path and the plan's prediction", all(w in out for w in ("a ", "b ", "critical path", "planned")))
    expect("figures have both devices", [d["name"] for d in plain["devices"]] == ["a", "b"])
    expect("first step near the plan's prediction", abs(plain["first_step_seconds"] / plain["planned_seconds"] - 1) < 0.05)
    expect("the cluster's links are used", plain["links"] == "topology")

    simulate("--json", figures, "--compute-scale=*=2")
    with open(figures) as f:
        fast = json.load(f)
    expect("twice as fast devices compute half of the time", abs(fast["devices"][0]["compute_seconds"] / plain["devices"][0]["compute_seconds"] - 0.5) < 0.05)
    simulate("--json", figures, "--bandwidth-scale=0.001")
    with open(figures) as f:
        slow = json.load(f)
    expect("slower links make slower steps", slow["step_seconds"] > plain["step_seconds"])

    trace = os.path.join(folder, "trace.json")
    simulate("--trace", trace, "--trace-steps", 2)
    with open(trace) as f:
        simulated = {(e["pid"], e["name"]) for e in json.load(f)["traceEvents"] if e.get("ph") == "X"}
    data = os.path.join(folder, "data.txt")
    with open(data, "wb") as f:
        f.write(bytes((i * i // 7) % 251 for i in range(20000)))
    z.run(bundle, data, 2, extra=("--trace", trace, "--in-process", "--throttle", "b=0.5"))
    with open(trace) as f:
        real = {(e["pid"], e["name"]) for e in json.load(f)["traceEvents"] if e.get("ph") == "X"}
    expect("a simulated trace has the entries of a real one, by the same names", simulated == real)

    for name in ("weights.safetensors", "kernels"):
        path = os.path.join(bundle, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    expect("weights and kernels need not be there", simulate()[0] == 0)
    expect("and evaluations are simulated too", "evaluations simulated" in simulate("--simulate-eval")[1])

    for words, said in ((("--compute-scale=c=2",), "no device 'c'"), (("--compute-scale=a",), "DEVICE=NUMBER"), (("--compute-scale=a=-1",), "DEVICE=NUMBER"), (("--data", data), "executes nothing"),
                        (("--simulate-steps", 1 << 30), "limited to"), (("--max-steps", 2), "--simulate-steps"), (("--bandwidth-scale=0",), "--bandwidth-scale")):
        code, _, err = simulate(*words, ok=False)
        expect(f"{' '.join(map(str, words))}: exit 1, '{said}'", code == 1 and said in err)
    code, _, err = z.call("zorse-run", bundle, "--json", figures, "--data", data, "--max-steps", 1, ok=False)
    expect("--json without --simulate is refused", code == 1 and "--simulate" in err)
    code, _, err = z.call("zorse-run", bundle, "--max-steps", 1, ok=False)
    expect("without --simulate data is required", code == 1 and "--data is required" in err)

    with open(os.path.join(bundle, "topology.pb"), "r+b") as f:
        f.write(b"\xff")
    code, _, err = simulate(ok=False)
    expect("a damaged topology is named", code == 1 and "topology.pb" in err)
z.finish(results)
