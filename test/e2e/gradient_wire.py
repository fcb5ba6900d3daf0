"""Gradients that travel as bf16 between nodes or sites (--gradient-wire): a small GPT on CPUs of two nodes trains with the same bits over threads and
over processes, with the loss of f32 up to rounding; the plan decides, and refuses what it cannot do.

    gradient_wire.py
"""
import json
import os
import subprocess
import tempfile

import harness as z

MODEL, DATA = os.path.join(z.SMALL, "gpt.onnx"), os.path.join(z.SMALL, "gpt.tokens.bin")
BATCH, LENGTH, UNITS, STEPS = 8, 32, 8, 30
NODES = [["a", "b"], ["c", "d"]]
DEVICES = ["a", "b", "c", "d"]
CELLS = [(0, UNITS, 2 * i, 2 * i + 2, d) for i, d in enumerate(DEVICES)]
# Owners that neither contribute equally nor own what their node sums: sums are passed on.
UNEVEN = {"state": {"groups": [{"group": "*", "owners": [{"device": d, "fraction": f} for d, f in zip(DEVICES, (0.5, 0.1, 0, 0.4))]}]}}


def said(name, good, detail=""):
    print(f"{'ok  ' if good else 'FAIL'} {name}{'' if good else ': ' + detail[-400:]}", flush=True)
    return bool(good)


def cluster_of_sites(folder, sites):
    """The two nodes, in one site or two."""
    path = os.path.join(folder, f"sites-{sites}.yaml")
    with open(path, "w") as f:
        f.write("name: test\nlinks: {inter_site: {bandwidth: 1 Gbit/s}}\nsites: [" + ", ".join(f"{{name: s{s}}}" for s in range(sites)) + "]\nnodes:\n")
        for i, node in enumerate(NODES):
            devices = ", ".join(f"{{name: {d}, kind: cpu, flops_per_second: 1e10, memory: 2GiB, threads: 1}}" for d in node)
            f.write(f"  - {{name: n{i}, site: s{i % sites}, devices: [{devices}]}}\n")
    return path


def trained(bundle, folder, *words):
    weights = os.path.join(folder, "weights.safetensors")
    losses = [m["loss"] for m in z.run(bundle, DATA, STEPS, checkpoint=weights, extra=["--seed", 3, *words])]
    with open(weights, "rb") as f:
        return losses, f.read()


def trains(folder, name, more):
    """f32 and bf16 with one plan: bits over threads and processes, and the loss."""
    results, losses = [], {}
    cluster = z.cluster(folder, DEVICES, NODES)
    for wire in ("f32", "bf16"):
        bundle = os.path.join(folder, f"{name}-{wire}.zorse")
        plan = z.plan(folder, f"{name}-{wire}", BATCH, DEVICES, CELLS, gradient_wire=wire, **more)
        z.compile(MODEL, bundle, cluster, BATCH, LENGTH, plan)
        losses[wire], weights = trained(bundle, folder, "--in-process")
        for how, words in (("processes", ["--spawn"]), ("threads again", ["--in-process"])):
            results.append(said(f"{name}, {wire}: {how} give the same bits", trained(bundle, folder, *words) == (losses[wire], weights)))
    results.append(said(f"{name}: bf16 changes bits", losses["bf16"] != losses["f32"]))
    results.append(z.check(f"{name}: losses of bf16 and f32", z.relative(losses["bf16"], losses["f32"]), 1e-2))
    return results, os.path.join(folder, f"{name}-bf16.zorse")


def same_files(one, other):
    return subprocess.run(["diff", "-rq", one, other], capture_output=True, text=True)


def options(folder):
    """The option and the key of the plan are one; off is the default, to the byte."""
    results = []
    cluster = z.cluster(folder, DEVICES, NODES)
    plain = z.plan(folder, "plain", BATCH, DEVICES, CELLS)
    keyed = z.plan(folder, "keyed", BATCH, DEVICES, CELLS, gradient_wire="bf16")
    bundles = {}
    for name, plan, extra in (("default", plain, []), ("off", plain, ["--gradient-wire=f32"]), ("key off", keyed, ["--gradient-wire=f32"]),
                              ("key", keyed, []), ("option", plain, ["--gradient-wire", "bf16"])):
        bundles[name] = os.path.join(folder, name.replace(" ", "-") + ".zorse")
        z.compile(MODEL, bundles[name], cluster, BATCH, LENGTH, plan, extra=extra)
    for one, other in (("default", "off"), ("default", "key off"), ("key", "option")):
        found = same_files(bundles[one], bundles[other])
        results.append(said(f"bundles '{one}' and '{other}' are equal", found.returncode == 0, found.stdout))
    results.append(said("bundles with and without differ", same_files(bundles["default"], bundles["key"]).returncode == 1))
    rebuilt = os.path.join(folder, "rebuilt.zorse")
    z.call("zorse-compile", MODEL, "--seq-length", LENGTH, "--rebuild-kernels", bundles["key"], "--quiet", "-o", rebuilt)
    with open(os.path.join(rebuilt, "plan.json")) as f:
        results.append(said("a rebuilt bundle keeps it", json.load(f).get("gradient_wire") == "bf16"))
    for sites in (1, 2):
        bundle = os.path.join(folder, f"sites-{sites}.zorse")
        z.compile(MODEL, bundle, cluster_of_sites(folder, sites), BATCH, LENGTH, plain, extra=["--gradient-wire=bf16:sites"])
        mutants = subprocess.run([os.path.join(z.BIN, "exchange-mutants"), "--roundings", bundle], capture_output=True, text=True)
        results.append(said(f"bf16:sites with {sites} sites: {mutants.stdout.strip()}", mutants.returncode == 0, mutants.stderr))
        losses = trained(bundle, folder, "--in-process")[0]
        if sites == 1:
            results.append(said("bf16:sites in one site rounds nothing", losses == trained(bundles["default"], folder, "--in-process")[0]))
        else:
            results.append(said("bf16:sites between two sites rounds", losses != trained(bundles["default"], folder, "--in-process")[0]))
    return results


def refusals(folder):
    results = []
    cluster = z.cluster(folder, DEVICES, NODES)
    plain = z.plan(folder, "refused", BATCH, DEVICES, CELLS)
    for name, extra, precision, message in (("f16", ["--gradient-wire=f16"], "f32", "expects bf16 (in sums between nodes), bf16:sites (in sums between sites) or f32 (off), got 'f16': gradients overflow in f16"),
                                            ("f64 gradients", ["--gradient-wire=bf16"], "f64", "which rounds f32 gradients, and the gradients of group")):
        code, out, err = z.compile(MODEL, os.path.join(folder, "refused.zorse"), cluster, BATCH, LENGTH, plain, precision=precision, ok=False, extra=extra)
        results.append(said(f"{name}: refused", code != 0 and message in out + err, out + err))
        code, out, err = z.compile(MODEL, os.path.join(folder, "refused.zorse"), cluster, BATCH, LENGTH, None, precision=precision, ok=False, extra=extra)
        results.append(said(f"{name}, without a plan: refused", code != 0 and message in out + err, out + err))
    keyed = z.plan(folder, "refused-key", BATCH, DEVICES, CELLS, gradient_wire="fp8")
    code, out, err = z.compile(MODEL, os.path.join(folder, "refused.zorse"), cluster, BATCH, LENGTH, keyed, ok=False)
    results.append(said("an unknown type in the plan", code != 0 and "gradient_wire: expects bf16" in out + err, out + err))
    return results


def planned(folder):
    """The planner counts two bytes per element of a term, and four of a gathered parameter: a quarter less in all. It writes the key."""
    results, steps = [], {}
    path = os.path.join(folder, "slow.yaml")
    with open(path, "w") as f:
        f.write("name: slow\nlinks: {inter_node: {bandwidth: 10 Mbit/s}}\nnodes:\n" + "".join(
            f"  - {{name: n{i}, devices: [" + ", ".join(f"{{name: {d}, kind: cpu, flops_per_second: 1e10, memory: 2GiB, threads: 1}}" for d in node) + "]}\n" for i, node in enumerate(NODES)))
    for wire in ("f32", "bf16"):
        report, plan = os.path.join(folder, f"{wire}.report.json"), os.path.join(folder, f"{wire}.plan.json")
        z.call("zorse-plan", MODEL, "--cluster", path, "--global-batch-size", BATCH, "--seq-length", LENGTH, "--plan", z.plan(folder, "given", BATCH, DEVICES, CELLS),
               "--gradient-wire", wire, "--quiet", "--json", report, "-o", plan)
        with open(report) as f:
            steps[wire] = json.load(f)
        with open(plan) as f:
            results.append(said(f"zorse-plan --gradient-wire={wire} writes it", json.load(f).get("gradient_wire", "f32") == wire))
    seconds = {wire: report["step_seconds"] for wire, report in steps.items()}
    results.append(said(f"a step over slow links: {seconds['bf16']:.4g} s instead of {seconds['f32']:.4g} s", seconds["bf16"] < 0.8 * seconds["f32"]))
    results.append(said("the report says it", "gradients as bf16 between nodes" in steps["bf16"]["schedule"]))
    return results


def main():
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, more in (("even", {}), ("uneven owners", UNEVEN)):
            found, bundle = trains(folder, name.replace(" ", "-"), more)
            mutants = subprocess.run([os.path.join(z.BIN, "exchange-mutants"), "--roundings", bundle], capture_output=True, text=True)
            results += [*found, said(f"{name}: {mutants.stdout.strip()}", mutants.returncode == 0, mutants.stderr)]
        results += options(folder) + refusals(folder) + planned(folder)
    z.finish(results, "GPT on two nodes with gradients as bf16: same bits over threads and processes, losses within 1e-2 of f32")


if __name__ == "__main__":
    main()
