"""Tests the validation kit of GPU machines (test/hardware), built for the emulator and run on it: every step
passes, and detects the fault that is injected for it.

    hardware_kit.py [--all]     --all: every bundle and case; default: GPT in f32 and one class of kernels
"""
import contextlib
import glob
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

import cuda
import harness as z


def run(kit, *steps, **environment):
    """Results by step."""
    done = subprocess.run([os.path.join(kit, "run.sh"), *steps], env={**os.environ, "LD_LIBRARY_PATH": cuda.STANDIN, "ZORSE_EMULATOR_DEVICES": "2", "PYTHON": sys.executable, **environment}, capture_output=True, text=True)
    with open(os.path.join(kit, "report.json")) as f:
        return done, json.load(f)["steps"]


@contextlib.contextmanager
def damaged(path, change):
    with open(path, "rb") as f:
        kept = f.read()
    with open(path, "wb") as f:
        f.write(change(kept))
    try:
        yield {}
    finally:
        with open(path, "wb") as f:
            f.write(kept)


def other_result(case):
    """Changes the first expected number of the last result of a case. Expected values and tolerances are at the end of
    the file, after their counts."""
    count = next(n for n in range(1, len(case) // 8) if struct.unpack_from("<Q", case, len(case) - 4 * n - 8)[0] == n)
    at = len(case) - 8 * count - 8
    return case[:at] + struct.pack("<f", struct.unpack_from("<f", case, at)[0] + 1) + case[at + 4:]


@contextlib.contextmanager
def environment(**values):
    yield values


@contextlib.contextmanager
def without_nccl(folder):
    standin = shutil.copytree(cuda.STANDIN, os.path.join(folder, "standin"))
    for path in glob.glob(os.path.join(standin, "libnccl*")):
        os.remove(path)
    yield {"LD_LIBRARY_PATH": standin}


@contextlib.contextmanager
def reporting_sanitizer(folder):
    """A fake compute-sanitizer that reports an error."""
    path = os.path.join(folder, "tools", "compute-sanitizer")
    os.makedirs(os.path.dirname(path))
    with open(path, "w") as f:
        f.write("#!/bin/sh\necho '========= ERROR SUMMARY: 1 error'\nexit 9\n")
    os.chmod(path, 0o755)
    yield {"PATH": os.path.dirname(path) + ":" + os.environ["PATH"]}


def plants(kit, folder):
    """By step: a fault that it must detect."""
    with open(os.path.join(kit, "kit.json")) as f:
        case = json.load(f)["cases"][1]
    first = sorted(glob.glob(os.path.join(kit, "cases", "*.case")))[0]
    module = glob.glob(os.path.join(kit, "modules", "emu", "*"))[0]
    return {
        "machine": environment(CUDA_VISIBLE_DEVICES=""),
        "modules": damaged(module, lambda data: data[:64] + bytes(64) + data[128:]),
        "kernels": damaged(first, other_result),
        "products": environment(ZORSE_STANDIN_BLAS_WRONG="1"),
        "times": damaged(sorted(glob.glob(os.path.join(kit, "times", "*.case")))[-1], lambda data: data[:-100]),
        "nccl": without_nccl(folder),
        "memory": damaged(os.path.join(kit, "kit.json"), lambda data: json.dumps({**json.loads(data), "memory": {**json.loads(data)["memory"], "mebibytes": 32}}).encode()),
        "training": environment(ZORSE_STANDIN_BLAS_WRONG="1"),
        "speed": damaged(os.path.join(kit, case["bundle"], "plan.json"), lambda data: b"{}"),
        "sanitizer": reporting_sanitizer(folder),
    }


def main():
    results = []
    with tempfile.TemporaryDirectory() as folder:
        kit = os.path.join(folder, "kit")
        form = [] if "--all" in sys.argv else ["--quick"]
        subprocess.run([os.path.join(z.ROOT, "test", "hardware", "make_kit.sh"), kit, "--arch", "emu", *form], check=True)
        done, steps = run(kit)
        print(done.stdout + done.stderr)
        bad = [c for step in steps for c in step["checks"] if c["good"] is False]
        results += [z.check("steps", abs(len(steps) - 10), 0), z.check("checks that do not hold", len(bad) + (done.returncode != 0), 0)]
        with open(os.path.join(kit, "report.html")) as f:
            results.append(z.check("steps missing in the document", sum(f"<h2>{step['step']}" not in text for text in [f.read()] for step in steps), 0))
        found = 0
        for step, plant in plants(kit, folder).items():
            with plant as values:
                _, report = run(kit, step, **values)
            seen = [c for c in report[0]["checks"] if c["good"] is False]
            found += bool(seen)
            print(f"planted in {step}: {seen[0]['check'] + ': ' + seen[0]['figure'][:160] if seen else 'NOT FOUND'}", flush=True)
        results.append(z.check("planted faults that are not found", 10 - found, 0))
    z.finish(results, f"{len(steps)} steps, {sum(len(s['checks']) for s in steps)} checks; {found} of 10 planted faults found")


main()
