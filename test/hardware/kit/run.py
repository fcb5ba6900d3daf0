"""Runs the steps of the validation kit, the most informative first, each in a separate process with a time limit.
Started by run.sh.

    run.py [STEP ...]     default: all
"""
import json
import os
import signal
import subprocess
import sys
import time

import report

WHOLE = 600  # seconds for all steps
# Name, time limit in seconds, topic.
STEPS = [
    ("machine", 40, "Versions, GPUs, and memory in addition to the program's own"),
    ("modules", 60, "The driver compiles the kernels of every architecture"),
    ("kernels", 90, "Kernels against references"),
    ("products", 60, "Products of matrices: values, and time compared with torch.matmul"),
    ("times", 60, "Attention compared with PyTorch's, and kernels against a measured copy"),
    ("nccl", 60, "NCCL with one rank"),
    ("memory", 40, "A step in an arena that fills what is left of the GPU"),
    ("training", 180, "Training against processors under every sort of plan"),
    ("speed", 150, "Time of a training step, compared with PyTorch"),
    ("sanitizer", 120, "compute-sanitizer"),
]


def run_step(name, limit):
    """Returns the checks of a step. A step that does not end adds a failed check."""
    checks, begin = [], time.time()
    process = subprocess.Popen([sys.executable, "steps.py", name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, error = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, error = process.communicate()
        error = f"did not end within {limit:.0f} s"
    for line in out.splitlines():
        try:
            checks.append(json.loads(line))
        except ValueError:
            checks.append({"check": "output", "good": False, "figure": line})
    if process.returncode:
        checks.append({"check": name, "good": False, "figure": (error.strip().splitlines() or [f"exit code {process.returncode}"])[-1]})
    return {"step": name, "seconds": round(time.time() - begin, 1), "checks": checks}


def main():
    with open("kit.json") as f:
        kit = json.load(f)
    wanted, begin, done = sys.argv[1:], time.time(), []
    for name, limit, about in STEPS:
        if wanted and name not in wanted:
            continue
        left = WHOLE - (time.time() - begin)
        print(f"== {name}: {about}", flush=True)
        step = run_step(name, min(limit, left)) if left > 5 else {"step": name, "seconds": 0, "checks": [{"check": name, "good": None, "figure": f"left out: the kit's {WHOLE} s are over"}]}
        step["about"] = about
        for check in step["checks"]:
            print(f"{ {True: 'ok  ', False: 'FAIL', None: '--  '}[check['good']]} {check['check']}: {check['figure']}", flush=True)
        done.append(step)
        report.write(kit, done, time.time() - begin)
    checks = [c for step in done for c in step["checks"]]
    bad = sum(c["good"] is False for c in checks)
    print(f"{sum(c['good'] is True for c in checks)} of {sum(c['good'] is not None for c in checks)} checks hold on {kit['arch']}, {len(done)} steps in {time.time() - begin:.0f} s: report.html, report.json")
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
