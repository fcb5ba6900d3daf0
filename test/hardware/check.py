"""Runs a suite of make_suite.py where a GPU is: parity with processors, the same bits twice, compute-sanitizer, tokens a second. Started by check.sh."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

import harness as z

STEPS = 20  # the emulator does a few: it is the suite that is tried there
LIMITS = {"f32": (1e-4, 1e-4), "bf16": (2e-3, 2e-2), "f16": (2e-3, 2e-2)}  # losses, gradients of the first step
SHARED = ("--share-gpus",)  # a machine with one GPU checks the plans of several devices as well
results = []


def report(name, good, figure):
    results.append({"check": name, "good": good, "figure": figure})
    print(f"{'ok  ' if good else 'FAIL'} {name}: {figure}", flush=True)


def train(case, folder):
    gradients = os.path.join(folder, "g")
    metrics = z.run(case["bundle"], "tokens.bin", STEPS, gradients=gradients, extra=SHARED)
    return [m["loss"] for m in metrics], z.safetensors(gradients)


def parity(cases, folder):
    reference = None
    for case in cases:
        try:
            losses, gradients = train(case, folder)
        except z.Failure as failure:
            report(case["name"], False, str(failure).strip().splitlines()[-1])
            continue
        if case["name"].endswith("processor") and "GPU" not in case["name"]:
            reference = losses, gradients
            continue
        worst, limit = (z.relative(losses, reference[0]), z.gradient_error(gradients, reference[1])[0]), LIMITS[case["precision"]]
        report(case["name"], worst[0] <= limit[0] and worst[1] <= limit[1], f"losses {worst[0]:.2e} (limit {limit[0]:g}), first gradients {worst[1]:.2e} (limit {limit[1]:g})")


def techniques(cases, folder):
    """Where activations and state are, and when they come, changes no bit."""
    plain = {}  # by how cells are cut: sums over other cells have other last bits
    for case in cases:
        path = os.path.join(folder, "technique")
        try:
            z.run(case["bundle"], "tokens.bin", STEPS, checkpoint=path, extra=SHARED)
        except z.Failure as failure:
            report(case["name"], False, str(failure).strip().splitlines()[-1])
            continue
        values = z.safetensors(path)
        kept = plain.setdefault(case["technique"], values)
        if values is not kept:
            report(case["name"], all(np.array_equal(kept[k], values[k]) for k in kept), f"the bits of everything on the device: {len(kept)} parameters after {STEPS} steps")


def same_bits(case, folder):
    first, second = os.path.join(folder, "1"), os.path.join(folder, "2")
    for path in (first, second):
        z.run(case["bundle"], "tokens.bin", STEPS, checkpoint=path, extra=SHARED)
    a, b = z.safetensors(first), z.safetensors(second)
    report(f"the same bits twice: {case['name']}", all(np.array_equal(a[k], b[k]) for k in a), f"{len(a)} parameters after {STEPS} steps")


def sanitizer(case):
    program = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if not program:
        return print("left out: compute-sanitizer is not on this machine")
    for tool in ("memcheck", "racecheck", "synccheck", "initcheck"):
        done = subprocess.run([program, "--tool", tool, "--error-exitcode", "9", "--target-processes", "all", os.path.join(z.BIN, "zorse-run"), case["bundle"], "--data", "tokens.bin", "--steps", "2", *SHARED],
                              capture_output=True, text=True)
        said = [line for line in done.stdout.splitlines() if "ERROR SUMMARY" in line or "RACECHECK SUMMARY" in line]
        report(f"compute-sanitizer {tool}: {case['name']}", done.returncode == 0, said[-1].strip("= ") if said else f"exit code {done.returncode}")


def overhead(case, steps):
    """The host's time a step of a model so small that the GPU has nothing to do."""
    metrics = z.run(case["bundle"], "tokens.bin", steps, extra=SHARED)
    times = sorted(m["seconds"] for m in metrics[20:] if "seconds" in m)
    if times:
        report(f"a step of a tiny model: {case['name']}", True, f"{times[len(times) // 2] * 1e3:.2f} ms")


def gpt2(suite, folder, techniques):
    weights, rng = os.path.join(folder, "w.safetensors"), np.random.default_rng(0)
    header, parts, offset = {}, [], 0
    for name, shape in suite["parameters"].items():
        values = (rng.standard_normal(shape) * 0.02 if len(shape) > 1 else np.full(shape, 1.0 if "norm" in name and "bias" not in name else 0.0)).astype(np.float32)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + values.nbytes]}
        parts.append(values)
        offset += values.nbytes
    text = json.dumps(header).encode()
    with open(weights, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for part in parts:
            f.write(part.tobytes())
    tokens = os.path.join(folder, "tokens.npy")
    np.save(tokens, rng.integers(0, 50000, (64, 1024)).astype(np.int64))
    start = time.time()
    metrics = z.run(suite["bundle"], f"input_ids={tokens},labels={tokens}", 30, extra=("--init", weights, *SHARED))
    rates = sorted(m["tokens_per_second"] for m in metrics[5:] if "tokens_per_second" in m)
    report("GPT-2 124M, bf16, 32 x 1024", bool(rates), f"{rates[len(rates) // 2]:,.0f} tokens/s, {time.time() - start:.0f} s in all" if rates else "no rate in the metrics")
    if rates:
        pytorch(suite["tokens"], rates[len(rates) // 2])
    for case in techniques:
        metrics = z.run(case["bundle"], f"input_ids={tokens},labels={tokens}", 12, extra=("--init", weights, *SHARED))
        rates = sorted(m["tokens_per_second"] for m in metrics[3:] if "tokens_per_second" in m)
        report(case["name"], bool(rates), f"{rates[len(rates) // 2]:,.0f} tokens/s, loss {metrics[-1]['loss']:.6f}" if rates else "no rate in the metrics")


def processes(case, folder):
    """Each device in a process of its own: on one GPU, ranks share it, and bytes go by way of the host."""
    if os.environ.get("ZORSE_NO_PROCESSES"):
        return print("left out: --processes needs a C library as new as the one that zorse-run was built with")
    alone, apart = (os.path.join(folder, name) for name in ("threads", "processes"))
    try:
        z.run(case["bundle"], "tokens.bin", STEPS, checkpoint=alone, extra=SHARED)
        z.run(case["bundle"], "tokens.bin", STEPS, checkpoint=apart, extra=("--processes", *SHARED))
    except z.Failure as failure:
        return report(f"--processes: {case['name']}", False, str(failure).strip().splitlines()[-1])
    a, b = z.safetensors(alone), z.safetensors(apart)
    report(f"--processes: {case['name']}", all(np.array_equal(a[k], b[k]) for k in a), f"the bits of threads: {len(a)} parameters after {STEPS} steps")


def pytorch(tokens, rate):
    """The same model, optimizer and batch in PyTorch, where it is installed."""
    if subprocess.run([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"], capture_output=True).returncode:
        return print("left out: no PyTorch that sees the GPU")
    for name, extra in (("eager", []), ("torch.compile", ["--compile"])):
        words = [sys.executable, "torch_step.py", "gpt2-124m", "--batch", str(tokens // 1024), "--sequence", "1024", "--device", "cuda", "--autocast", "--steps", "40", *extra]
        done = subprocess.run(words, capture_output=True, text=True)
        found = re.search(r"tokens/s [\d.]+ ([\d.]+)", done.stdout)
        report(f"GPT-2 124M in PyTorch, {name}", bool(found), f"{float(found[1]):,.0f} tokens/s: Zorse is {rate / float(found[1]):.2f} times as fast" if found else done.stderr.strip().splitlines()[-1])


def main():
    with open("suite.json") as f:
        suite = json.load(f)
    if shutil.which("nvidia-smi"):
        subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,compute_cap,memory.total", "--format=csv"], check=False)
    cases = suite["cases"]
    global STEPS
    STEPS = 5 if suite["arch"] == "emu" else STEPS
    with tempfile.TemporaryDirectory() as folder:
        parity([c for c in cases if "technique" not in c], folder)
        techniques([c for c in cases if "technique" in c], folder)
        alone = [c for c in cases if c["name"].endswith("one GPU") and "two" not in c["name"]]
        for case in alone[:2]:
            same_bits(case, folder)
        for case in cases:
            if case["precision"] == "f32" and case["name"].endswith(("two devices on one GPU", "shares 5 and 3")):
                processes(case, folder)
        overhead(alone[0], 40 if suite["arch"] == "emu" else 400)
        if "gpt2" in suite:
            gpt2(suite["gpt2"], folder, suite["gpt2_techniques"])
        if "--no-sanitizer" not in sys.argv:
            sanitizer(alone[0])
    with open("report.json", "w") as f:
        json.dump(results, f, indent=1)
    bad = sum(not r["good"] for r in results)
    print(f"{len(results) - bad} of {len(results)} checks hold on {suite['arch']}")
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
