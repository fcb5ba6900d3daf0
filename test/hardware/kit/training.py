"""Training on the GPU: compared with the CPU, bitwise repeatability, under compute-sanitizer, and speed."""
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

LIMITS = {"f32": (1e-4, 1e-4), "tf32": (2e-3, 5e-3), "bf16": (2e-3, 2e-2), "f16": (2e-3, 2e-2)}  # losses, gradients of the first step
SHARED = ("--share-gpus",)  # on a machine with one GPU, plans for several devices are also checked


def last_line(failure):
    return str(failure).strip().splitlines()[-1]


class Training:
    def __init__(self, kit, folder, say):
        self.cases, self.folder, self.say = kit["cases"], folder, say
        self.steps = 5 if kit["arch"] == "emu" else 20  # few on the emulator, where only the kit itself is tested

    def run(self, case, name, *extra, gradients=None):
        """Metrics, and the parameters of the checkpoint; None if the run failed (already reported)."""
        checkpoint = os.path.join(self.folder, name)
        try:
            metrics = z.run(case["bundle"], "tokens.bin", self.steps, checkpoint=checkpoint, gradients=gradients, extra=(*extra, *SHARED))
        except z.Failure as failure:
            self.say(case["name"], False, last_line(failure))
            return None
        return [m["loss"] for m in metrics], z.safetensors(checkpoint)

    def compare_bits(self, name, found, wanted, what):
        if found and wanted:
            values, others = found[1], wanted[1]
            self.say(name, all(np.array_equal(values[k], others[k]) for k in others), f"{what}: {len(others)} parameters after {self.steps} steps")

    def parity(self):
        reference, first = None, os.path.join(self.folder, "g")
        for case in (c for c in self.cases if "technique" not in c):
            result = self.run(case, "parity", gradients=first)
            if not result:
                continue
            losses, gradients = result[0], z.safetensors(first)
            if case["name"].endswith("processor") and "GPU" not in case["name"]:
                reference = losses, gradients
                continue
            worst, limit = (z.relative(losses, reference[0]), z.gradient_error(gradients, reference[1])[0]), LIMITS[case["precision"]]
            self.say(case["name"], worst[0] <= limit[0] and worst[1] <= limit[1], f"losses {worst[0]:.2e} (limit {limit[0]:g}), first gradients {worst[1]:.2e} (limit {limit[1]:g})")

    def techniques(self):
        """The location of activations and state, and the time of their transfers, change no bit."""
        plain = {}  # by tiling: sums over other cells have other last bits
        for case in (c for c in self.cases if "technique" in c):
            result = self.run(case, "technique")
            kept = plain.setdefault(case["technique"], result)
            if result is not kept:
                self.compare_bits(case["name"], result, kept, "the bits of everything on the device")

    def same_bits(self, case):
        self.compare_bits(f"the same bits twice: {case['name']}", self.run(case, "1"), self.run(case, "2"), "equal")

    def processes(self, case):
        """Each device in a separate process: ranks share the GPU, and data is staged through the host."""
        name = f"--spawn: {case['name']}"
        if os.environ.get("ZORSE_NO_PROCESSES"):
            return self.say(name, None, "left out: --spawn needs a C library as new as the one that zorse-run was built with")
        self.compare_bits(name, self.run(case, "apart", "--spawn"), self.run(case, "threads"), "the bits of threads")


def alone(cases):
    return [c for c in cases if c["name"].endswith("one GPU") and "two" not in c["name"]]


def check(kit, say):
    with tempfile.TemporaryDirectory() as folder:
        training = Training(kit, folder, say)
        training.parity()
        for case in alone(kit["cases"])[:2]:
            training.same_bits(case)
        for case in kit["cases"]:
            if case["precision"] == "f32" and case["name"].endswith(("two devices on one GPU", "shares 5 and 3")):
                training.processes(case)
        training.techniques()


def sanitizer(cases, say):
    case, program = alone(cases)[0], shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if not program:
        return say("compute-sanitizer", None, "left out: it is not on this machine")
    for tool in ("memcheck", "racecheck", "synccheck", "initcheck"):
        words = [program, "--tool", tool, "--error-exitcode", "9", "--target-processes", "all", os.path.join(z.BIN, "zorse-run"), case["bundle"], "--data", "tokens.bin", "--max-steps", "2", *SHARED]
        done = subprocess.run(words, capture_output=True, text=True)
        said = [line for line in done.stdout.splitlines() if "ERROR SUMMARY" in line or "RACECHECK SUMMARY" in line]
        say(f"compute-sanitizer {tool}: {case['name']}", done.returncode == 0, said[-1].strip("= ") if said else f"exit code {done.returncode}")
    return None


def draw_weights(path, shapes):
    rng, header, parts, offset = np.random.default_rng(0), {}, [], 0
    for name, shape in shapes.items():
        values = (rng.standard_normal(shape) * 0.02 if len(shape) > 1 else np.full(shape, 1.0 if "norm" in name and "bias" not in name else 0.0)).astype(np.float32)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + values.nbytes]}
        parts.append(values)
        offset += values.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for part in parts:
            f.write(part.tobytes())
    return path


def median_rate(metrics, skip):
    rates = sorted(m["tokens_per_second"] for m in metrics[skip:] if "tokens_per_second" in m)
    return rates[len(rates) // 2] if rates else None


def shares(trace):
    """Time of a step by queue activity, from a trace."""
    with open(trace) as f:
        events = json.load(f)
    events = events["traceEvents"] if isinstance(events, dict) else events
    spans = [e for e in events if e.get("ph") == "X"]
    names, whole = {}, max((e["ts"] + e["dur"] for e in spans), default=0) - min((e["ts"] for e in spans), default=0)
    for e in spans:
        kind = re.split(r"[ :(]", e["name"])[0]
        names[kind] = names.get(kind, 0) + e["dur"]
    return ", ".join(f"{kind} {100 * time / whole:.0f} %" for kind, time in sorted(names.items(), key=lambda entry: -entry[1])[:8]) if whole else ""


def tiny(kit, say):
    """The host's time per step, for a model so small that the GPU is idle."""
    case = alone(kit["cases"])[0]
    metrics = z.run(case["bundle"], "tokens.bin", 40 if kit["arch"] == "emu" else 400, extra=SHARED)
    times = sorted(m["seconds"] for m in metrics[20:] if "seconds" in m)
    say(f"a step of a tiny model: {case['name']}", bool(times), f"{times[len(times) // 2] * 1e3:.2f} ms" if times else "no times in the metrics")


def speed(kit, folder, say):
    tiny(kit, say)
    model = kit.get("gpt2")
    if not model:
        return say("GPT-2 124M", None, "left out: the kit was made without --gpt2")
    weights, tokens, trace = draw_weights(os.path.join(folder, "w.safetensors"), model["parameters"]), os.path.join(folder, "tokens.npy"), os.path.join(folder, "trace.json")
    np.save(tokens, np.random.default_rng(0).integers(0, 50000, (64, 1024)).astype(np.int64))
    data, begin = f"input_ids={tokens},labels={tokens}", time.time()
    metrics = z.run(model["bundle"], data, 30, extra=("--load-weights", weights, *SHARED))
    rate = median_rate(metrics, 5)
    say(model["name"], bool(rate), f"{rate:,.0f} tokens/s, {time.time() - begin:.0f} s in all" if rate else "no rate in the metrics")
    if rate:
        pytorch(model["tokens"], rate, say)
    z.run(model["bundle"], data, 4, extra=("--load-weights", weights, "--trace", trace, *SHARED))
    say("GPT-2 124M, where the time goes", True, shares(trace))
    for case in kit["gpt2_techniques"]:
        metrics = z.run(case["bundle"], data, 12, extra=("--load-weights", weights, *SHARED))
        rate = median_rate(metrics, 3)
        say(case["name"], bool(rate), f"{rate:,.0f} tokens/s, loss {metrics[-1]['loss']:.6f}" if rate else "no rate in the metrics")
    return None


def pytorch(tokens, rate, say):
    """The same model, optimizer and batch in PyTorch, if it is installed."""
    if subprocess.run([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"], capture_output=True).returncode:
        return say("GPT-2 124M in PyTorch", None, "left out: no PyTorch that sees the GPU")
    for name, extra in (("eager", []), ("torch.compile", ["--compile"])):
        words = [sys.executable, "torch_step.py", "gpt2-124m", "--batch", str(tokens // 1024), "--sequence", "1024", "--device", "cuda", "--autocast", "--steps", "40", *extra]
        done = subprocess.run(words, capture_output=True, text=True)
        found = re.search(r"tokens/s [\d.]+ ([\d.]+)", done.stdout)
        say(f"GPT-2 124M in PyTorch, {name}", bool(found), f"{float(found[1]):,.0f} tokens/s: Zorse is {rate / float(found[1]):.2f} times as fast" if found else (done.stderr.strip().splitlines() or ["no rate"])[-1])
    return None
