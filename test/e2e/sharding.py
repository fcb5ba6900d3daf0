"""Divides all small models among two to four devices with random shares (tensor parallelism), and evaluates the functions of
the devices together: losses, activations and gradients are those of one device.

    sharding.py
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

import harness as z

CHECK = os.path.join(z.BIN, "check-sharding")
# Forms of the import; the first one that works is taken.
FORMS = (["--loss", "cross_entropy"], [], ["--seq-length", "8"], ["--group-rows", "2"])


def joint(model, path):
    """Writes the joint functions of a model. Returns whether one form of the import works."""
    for form in FORMS:
        imported = subprocess.run([os.path.join(z.BIN, "zorse-import"), model, "--full", "--infer-trainable", *form], capture_output=True)
        if imported.returncode:
            continue
        done = subprocess.run([os.path.join(z.BIN, "zorse-opt"), "--zorse-train-pipeline=to=units", "--zorse-join-backward", "-o", path],
                              input=imported.stdout, capture_output=True)
        if done.returncode == 0:
            return True
    return False


def main():
    models = sorted(glob.glob(os.path.join(z.SMALL, "**", "*.onnx"), recursive=True))
    tried, right, most, worst = 0, 0, 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            path = os.path.join(folder, "joint.mlir")
            if not joint(model, path):
                continue
            done = subprocess.run([CHECK, path], capture_output=True, text=True)
            found = re.search(r": ([\d.]+) % of the FLOPs.*worst difference ([\d.e+-]+), (\d+) not evaluated", done.stdout)
            tried += 1
            good = done.returncode == 0 and found and found[3] == "0"
            right += bool(good)
            most += bool(found and float(found[1]) >= 50)
            worst = max(worst, float(found[2]) if found else 0)
            print(f"{'ok  ' if good else 'FAIL'} {os.path.relpath(model, z.SMALL)}{done.stdout.removeprefix(path).rstrip()}{done.stderr[-500:]}", flush=True)
    print(f"{right} of {tried} models hold: random shares of 2 to 4 devices compute what one device does, worst difference {worst:.1e} (limit 1e-09); "
          f"{most} of them divide at least half of their FLOPs")
    sys.exit(right != tried or tried < 30)


if __name__ == "__main__":
    main()
