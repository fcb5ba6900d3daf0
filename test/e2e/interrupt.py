"""Ctrl-C and SIGTERM stop a run after the current step: exit code 130, a message, and all requested output files."""
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time

import harness as z


def at_once(folder, bundle):
    """Two signals in quick succession, as timeout(1) sends them, are one request: checkpoint and snapshot are written."""
    results = []
    for way in ([], ["--spawn"]):
        checkpoint, snapshots = os.path.join(folder, "at-once.safetensors"), os.path.join(folder, "snapshots" + "".join(way))
        words = [os.path.join(z.BIN, "zorse-run"), bundle, "--data", os.path.join(z.SMALL, "gpt.tokens.bin"), "--max-steps", "100000000", "--save-weights", checkpoint, "--checkpoint-dir",
                 snapshots, *way]
        run = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in run.stdout:
            if line.startswith("step 3/"):
                break
        drain = threading.Thread(target=run.stdout.read, daemon=True)
        drain.start()
        run.send_signal(signal.SIGTERM)
        time.sleep(0.005)
        run.send_signal(signal.SIGTERM)
        err = run.stderr.read()
        run.wait(60 * z.PATIENCE)
        good = run.returncode == 130 and os.path.exists(checkpoint) and len(z.safetensors(checkpoint)) > 0 and any(n.startswith("step-") for n in os.listdir(snapshots))
        print(f"{'ok  ' if good else 'FAIL'} SIGTERM twice in quick succession {' '.join(way)}: exit {run.returncode}, {err.strip()[-300:]}")
        results.append(good)
        # The printed command resumes the run when a shell executes it.
        step, command = re.search(r"interrupted after step (\d+) of", err), re.search(r"^(?:\[a\] )?to resume: (.*)$", err, re.M)
        done = subprocess.run(["bash", "-c", command[1].replace("100000000", str(int(step[1]) + 2))], capture_output=True, text=True, timeout=60 * z.PATIENCE) if step and command else None
        good = done is not None and done.returncode == 0 and f"resumed after step {step[1]}" in done.stdout and f"checkpoint of step {int(step[1]) + 2}: {snapshots}/step-" in done.stdout
        print(f"{'ok  ' if good else 'FAIL'} the printed command resumes {' '.join(way)}: {command and command[1][-120:]}{'' if good else f' {done}'}")
        results.append(good)
        if os.path.exists(checkpoint):
            os.remove(checkpoint)
    return results


def unusual_starts(folder, bundle):
    """With closed standard streams, and with a limit on address space, the run still ends."""
    results = []
    run = f"{z.BIN}/zorse-run {bundle} --data {z.SMALL}/gpt.tokens.bin --max-steps 3"
    lines = [(f"{run} {way} {closed}", 0) for way in ("", "--spawn") for closed in (">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-")]
    lines += [(f"ulimit -v {kilobytes}; {z.BIN}/zorse-run --help > {folder}/help", 0) for kilobytes in (60000, 100000, 150000, 250000)] if not z.SANITIZED else []
    for line, expected in lines:
        try:
            done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60 * z.PATIENCE)
            good, what = done.returncode == expected, f"exit {done.returncode} {done.stderr[-200:]}"
        except subprocess.TimeoutExpired:
            good, what = False, "did not end"
        if not good and ("error while loading shared libraries" in what or "out of memory" in what or "std::bad_alloc" in what or "libgomp: Out of memory" in what):  # the limit is too low to start
            good = True
        print(f"{'ok  ' if good else 'FAIL'} {line.replace(z.BIN + '/', '').replace(folder + '/', '')[-90:]}: {what}")
        results.append(good)
    if not z.SANITIZED:  # training under a limit: success or an error, never an endless loop
        for kilobytes in (300000, 600000, 1200000):
            done = subprocess.run(["bash", "-c", f"ulimit -v {kilobytes}; {run}"], capture_output=True, text=True, timeout=60 * z.PATIENCE)
            good = done.returncode == 0 or (done.returncode == 1 and "error" in done.stderr)
            print(f"{'ok  ' if good else 'FAIL'} training with ulimit -v {kilobytes}: exit {done.returncode} {done.stderr[-200:].strip()}")
            results.append(good)
    return results


def main():
    results = []
    with tempfile.TemporaryDirectory() as folder:
        bundle = os.path.join(folder, "b.zorse")
        z.compile(os.path.join(z.SMALL, "gpt.onnx"), bundle, z.cluster(folder, ["a", "b"]), 8, 32)
        for number in (signal.SIGINT, signal.SIGTERM):
            checkpoint, metrics = os.path.join(folder, "c.safetensors"), os.path.join(folder, "m.jsonl")
            run = subprocess.Popen([os.path.join(z.BIN, "zorse-run"), bundle, "--data", os.path.join(z.SMALL, "gpt.tokens.bin"), "--max-steps", "100000000",
                                    "--save-weights", checkpoint, "--metrics-file", metrics], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(int(600 * z.PATIENCE)):  # until it trains
                if os.path.exists(metrics) and os.path.getsize(metrics) > 0:
                    break
                time.sleep(0.05)
            run.send_signal(number)
            _, err = run.communicate(timeout=60 * z.PATIENCE)
            with open(metrics) as f:
                steps = [json.loads(line)["step"] for line in f]
            good = run.returncode == 130 and f"interrupted after step {steps[-1]} of" in err and len(z.safetensors(checkpoint)) > 0
            print(f"{'ok  ' if good else 'FAIL'} {number.name}: exit {run.returncode}, {err.strip()}")
            results.append(good)
            os.remove(checkpoint)
            os.remove(metrics)
        results += at_once(folder, bundle)
        results += unusual_starts(folder, bundle)
    z.finish(results)


if __name__ == "__main__":
    main()
