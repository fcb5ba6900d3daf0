"""One step of the validation kit: steps.py NAME. Prints a line of JSON for each check."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import harness as z

LEAST_SHARE = 0.4  # minimum fraction of a copy's rate for memory-bound kernels
with open("kit.json") as kit_file:
    KIT = json.load(kit_file)


def say(check, good, figure):
    """\\param good  None: not run"""
    print(json.dumps({"check": check, "good": good, "figure": figure}), flush=True)


def probe(*words):
    """Yields the checks of gpu-probe, as it prints them, and a failed check if it exits with an error."""
    process = subprocess.Popen([os.path.join(z.BIN, "gpu-probe"), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stdout:
        yield json.loads(line)
    if process.wait():
        yield {"check": f"gpu-probe {words[0]}", "good": False, "figure": (process.stderr.read().strip().splitlines() or [f"exit code {process.returncode}"])[-1]}


def pass_on(checks):
    for check in checks:
        print(json.dumps(check), flush=True)


def few(checks, what):
    """Prints the failed checks, and one line for the others."""
    held, worst = 0, 0.0
    for check in checks:
        if not check["good"]:
            print(json.dumps(check), flush=True)
            continue
        held += 1
        found = re.search(r"worst error ([\d.]+)", check["figure"])
        worst = max(worst, float(found[1])) if found else worst
    say(what, held > 0, f"{held} hold" + (f", worst error {worst:.3f} of its band" if worst else ""))


def has_torch():
    return subprocess.run([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"], capture_output=True).returncode == 0


def torch_times(kind, lines):
    """Seconds by name, of PyTorch on the same GPU; empty if it is not installed."""
    if not has_torch():
        say(f"PyTorch, {kind}", None, "left out: no PyTorch that sees the GPU")
        return {}
    done = subprocess.run([sys.executable, "torch_times.py", kind], input="\n".join(lines), capture_output=True, text=True)
    if done.returncode:
        say(f"PyTorch, {kind}", False, done.stderr.strip().splitlines()[-1])
    return {name: float(seconds) for name, seconds in (line.rsplit(" ", 1) for line in done.stdout.splitlines())}


def machine():
    if shutil.which("nvidia-smi"):
        done = subprocess.run(["nvidia-smi", "--query-gpu=index,name,driver_version,compute_cap,memory.total,memory.used,pci.bus_id", "--format=csv,noheader"], capture_output=True, text=True)
        for line in done.stdout.splitlines():
            say("nvidia-smi", True, line)
    pass_on(probe("machine"))


def modules():
    pass_on(probe("modules", "modules"))


def kernels():
    few(probe("kernels", "cases"), "kernels x shapes x types")


def products():
    with open("products.txt") as f:
        lines = f.read().splitlines()
    theirs = torch_times("products", lines)
    for check in probe("products", "products.txt"):
        seconds = theirs.get(check["check"].removeprefix("product "))
        if seconds and "seconds" in check:
            check["figure"] += f"; torch.matmul {seconds * 1e6:.1f} us: {seconds / check['seconds']:.2f} times as fast"
        print(json.dumps(check), flush=True)


def attention_flops(name):
    found = re.search(r"b(\d+) s(\d+) h(\d+)/\d+ d(\d+)", name)
    if not found:
        return 0
    b, s, h, d = map(int, found.groups())
    return 2 * b * h * s * s * d * (5 if "gradient" in name else 2) / 2  # products forward and backward; half of them for causal masks


def times():
    checks = list(probe("times", "times"))
    theirs = torch_times("attention", [c["check"] for c in checks if attention_flops(c["check"])])
    copy = next((c["bytes"] / c["seconds"] for c in checks if c["check"] == "a copy in the GPU's memory" and "seconds" in c), 0)
    for check in checks:
        flops = attention_flops(check["check"])
        if "seconds" not in check:
            pass
        elif flops:
            check["figure"] = f"{check['seconds'] * 1e6:.0f} us, {flops / check['seconds'] * 1e-12:.1f} TFLOP/s"
            seconds = theirs.get(check["check"])
            check["figure"] += f"; scaled_dot_product_attention {seconds * 1e6:.0f} us: {seconds / check['seconds']:.2f} times as fast" if seconds else ""
        elif copy and check["check"] != "a copy in the GPU's memory" and "product" not in check["check"] and "tensor cores" not in check["check"]:
            share = check["bytes"] / check["seconds"] / copy
            check["good"] = check["good"] and (share >= LEAST_SHARE or KIT["arch"] == "emu")
            check["figure"] += f", {share:.2f} of a copy's rate (at least {LEAST_SHARE:g})"
        print(json.dumps(check), flush=True)


def nccl():
    pass_on(probe("nccl"))


def memory():
    """Runs with exactly the memory that the program plans and the reserve of a cluster file."""
    case = KIT["memory"]
    words = [os.path.join(z.BIN, "gpu-probe"), "leave", str(case["mebibytes"]), os.path.join(z.BIN, "zorse-run"), case["bundle"], "--data", "tokens.bin", "--max-steps", "2", "--share-gpus"]
    emulated = {"ZORSE_EMULATOR_GPUS": f"g,80,{case['mebibytes']},00"} if KIT["arch"] == "emu" else {}  # its processes share no memory
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **emulated})
    lines = (done.stderr + done.stdout).strip().splitlines()
    error = next((line for line in lines if "error" in line), lines[-1] if lines else f"exit code {done.returncode}")
    say(f"a step where {case['mebibytes']} MiB are left ({case['planned']} MiB of the program, {case['reserve']} in reserve)", done.returncode == 0, error if done.returncode else "two steps")


def training():
    import training as t
    t.check(KIT, say)


def speed():
    import training as t
    with tempfile.TemporaryDirectory() as folder:
        t.speed(KIT, folder, say)


def sanitizer():
    import training as t
    t.sanitizer(KIT["cases"], say)


if __name__ == "__main__":
    {f.__name__: f for f in (machine, modules, kernels, products, times, nccl, memory, training, speed, sanitizer)}[sys.argv[1]]()
