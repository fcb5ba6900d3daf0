"""Ctrl-C and SIGTERM end a run after the steps under way: exit code 130, a message, and every file that was asked for."""
import json
import os
import signal
import subprocess
import tempfile
import time

import harness as z


def main():
    results = []
    with tempfile.TemporaryDirectory() as folder:
        bundle = os.path.join(folder, "b.zorse")
        z.compile(os.path.join(z.SMALL, "gpt.onnx"), bundle, z.cluster(folder, ["a", "b"]), 8, 32)
        for number in (signal.SIGINT, signal.SIGTERM):
            checkpoint, metrics = os.path.join(folder, "c.safetensors"), os.path.join(folder, "m.jsonl")
            run = subprocess.Popen([os.path.join(z.BIN, "zorse-run"), bundle, "--data", os.path.join(z.SMALL, "gpt.tokens.bin"), "--steps", "100000000",
                                    "--checkpoint", checkpoint, "--metrics", metrics], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
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
    z.finish(results)


if __name__ == "__main__":
    main()
