"""Snapshots written by an earlier version, committed in test/e2e/snapshots: the current program resumes them, under the
original plan and under another one, and reproduces the losses of the original run. Bundles of another format version
are refused with the command that compiles them again.

    committed_snapshots.py                tests
    committed_snapshots.py make FOLDER    writes them again with the current
                                          program; committed ones stay: a new version adds a folder

test/e2e/snapshots/STATE/CASE is the directory that zorse-run wrote after 4 of 10 steps; STATE/expected.json has the
losses of all ten.
"""
import json
import os
import re
import shutil
import sys
import tempfile

import harness as z

SNAPSHOTS = os.path.join(z.ROOT, "test", "e2e", "snapshots")
MODEL, DATA = os.path.join(z.SMALL, "mlp-tiny.onnx"), os.path.join(z.SMALL, "mlp-tiny.tokens.bin")
with open(os.path.join(z.SMALL, "optimizers.reference.json")) as f:
    REFERENCE = json.load(f)
BATCH, LENGTH, STEPS, TAKEN = REFERENCE["rows"], REFERENCE["sequence"], 10, 4
RUN = ["--lr-scheduler-type=cosine", f"--lr-decay-steps={STEPS}", "--warmup-steps=2", "--shuffle-seed=3", "--seed=9"]
SGD = {"optimizer": "sgd", "lr": "1e-1", "momentum": "0.9", "max-grad-norm": "0.5"}
ADAMW = {"optimizer": "adamw", "lr": "1e-2", "betas": "0.9,0.95", "eps": "1e-8", "weight-decay": "0.1", "max-grad-norm": "1.0"}
CASES = {  # name -> (options, precision, number of devices)
    "sgd": (SGD, "f32", 1),
    "adamw": (ADAMW, "f32", 1),
    "adamw-two-devices": (ADAMW, "f64", 2),
}
LIMITS = {"f32": 1e-5, "f64": 1e-9}


def bundle(folder, name, devices):
    """A bundle of a case, compiled now: one device, or two with uneven shares of samples and state."""
    training, precision, _ = CASES[name]
    path = os.path.join(folder, f"{name}-{devices}.zorse")
    names = ["a", "b"][:devices]
    plan = None
    if devices == 2:
        whole = os.path.join(folder, "units.zorse")
        z.compile(MODEL, whole, z.cluster(folder, ["a"]), BATCH, LENGTH, None, training, precision)
        with open(os.path.join(whole, "plan.json")) as f:
            units = max(cell["units"][1] for cell in json.load(f)["cells"])
        border = BATCH - 1
        owners = [{"device": "a", "fraction": 0.7}, {"device": "b", "fraction": 0.3}]
        plan = z.plan(folder, name, BATCH, names, [(0, units, 0, border, "a"), (0, units, border, BATCH, "b")], state={"groups": [{"group": "*", "owners": owners}]})
    z.compile(MODEL, path, z.cluster(folder, names), BATCH, LENGTH, plan, training, precision)
    return path


def make(folder):
    expected = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, (_, _, devices) in CASES.items():
            where, program = os.path.join(folder, name), bundle(scratch, name, devices)
            expected[name] = [m["loss"] for m in z.run(program, DATA, STEPS, extra=RUN)]
            z.run(program, DATA, TAKEN, extra=[*RUN, "--checkpoint-dir", where])
    with open(os.path.join(folder, "expected.json"), "w") as f:
        json.dump(expected, f, indent=1)
    print(f"{sum(os.path.getsize(os.path.join(base, n)) for base, _, names in os.walk(folder) for n in names)} bytes in {folder}")


def resumed(scratch, state, name, devices):
    """Losses of the steps after the snapshot."""
    here = os.path.join(scratch, f"{name}-{devices}")
    shutil.copytree(os.path.join(SNAPSHOTS, state, name), here)
    metrics = z.run(bundle(scratch, name, devices), DATA, STEPS, extra=[*RUN, "--checkpoint-dir", here, "--resume"])
    shutil.rmtree(here)
    return [m["loss"] for m in metrics]


def older_bundle(scratch, program):
    """A bundle with the previous format version in its manifest."""
    path = os.path.join(program, "manifest.json")
    with open(path) as f:
        text = f.read()
    version = int(re.search(r'"format_version": (\d+)', text)[1])
    old = os.path.join(scratch, "old.zorse")
    shutil.copytree(program, old)
    with open(os.path.join(old, "manifest.json"), "w") as f:
        f.write(text.replace(f'"format_version": {version}', f'"format_version": {version - 1}', 1))
    code, _, err = z.call("zorse-run", old, "--data", DATA, "--max-steps", 1, ok=False)
    command = re.search(r"compile it again: (zorse-compile .*)", err)
    words = command[1].split() if command else []
    good = code == 1 and f"format version {version}, got {version - 1}" in err and bool(words)
    print(f"{'ok  ' if good else 'FAIL'} a bundle of format {version - 1} is refused: {err.strip()}", flush=True)
    if not good:
        return [False]
    # The command is complete: only the model's name and the output path are replaced.
    replaced = [{"MODEL.onnx": MODEL, "NEW.zorse": os.path.join(scratch, "new.zorse")}.get(w, w) for w in words]
    code, _, err = z.call(*replaced, ok=False)
    print(f"{'ok  ' if code == 0 else 'FAIL'} the command that it names compiles it: {err.strip()[-300:] if code else ''}", flush=True)
    return [True, code == 0]


def main():
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        for state in sorted(os.listdir(SNAPSHOTS)):
            with open(os.path.join(SNAPSHOTS, state, "expected.json")) as f:
                expected = json.load(f)
            results.append(sorted(expected) == sorted(CASES))
            for name, (_, precision, taken_on) in CASES.items():
                for devices in (1, 2):
                    label = f"{state}, {name}: taken on {taken_on}, resumed on {devices}: losses of steps {TAKEN + 1} to {STEPS}"
                    results.append(z.check(label, z.relative(resumed(scratch, state, name, devices), expected[name][TAKEN:]), LIMITS[precision]))
        results += older_bundle(scratch, bundle(scratch, "adamw", 2))
    z.finish(results)


if __name__ == "__main__":
    make(sys.argv[2]) if sys.argv[1:2] == ["make"] else main()
