"""Snapshots and resuming, from the command line.

    resume.py exact [--quick]      a run that is stopped (time limit, SIGTERM, SIGKILL)
                                   and resumed is bit-identical to an uninterrupted run
    resume.py plans [--quick]      resumed on other devices under other plans: 5, then 3,
                                   then 7; compared with the uninterrupted run on 5
    resume.py refusals             settings that must be equal or may change, damaged
                                   files, other runs' directories, full disks
"""
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

import harness as z

QUICK = "--quick" in sys.argv
BATCH, LENGTH, UNITS = 8, 32, 8  # units of the small GPT: embedding, 3 x (attention, mlp), head with the loss
MODEL, DATA = os.path.join(z.SMALL, "gpt.onnx"), os.path.join(z.SMALL, "gpt.tokens.bin")
SEEN = ("step", "loss", "grad_norm", "lr", "skipped")


def run(bundle, data, steps, metrics, *extra, ok=True):
    """Train; returns (metrics by step, exit code, stderr)."""
    code, _, err = z.call("zorse-run", bundle, "--data", data, "--max-steps", steps, "--metrics-file", metrics, *extra, ok=ok)
    return lines(metrics), code, err


def lines(path):
    """The metrics of every step; for a killed run, up to the last complete line."""
    out = {}
    if not os.path.exists(path):
        return out
    with open(path) as f:
        for line in f:
            try:
                m = json.loads(line)
            except ValueError:
                break
            if "loss" in m:
                out[m["step"]] = tuple(m[k] for k in SEEN)
    return out


def content(path):
    with open(path, "rb") as f:
        return f.read()


def say(name, good, detail=""):
    print(f"{'ok  ' if good else 'FAIL'} {name}{': ' + detail if detail else ''}", flush=True)
    return bool(good)


def killed(words, number, seconds, metrics):
    """Runs until `seconds` after the first step, then sends a signal. Returns the exit code."""
    process = subprocess.Popen([os.path.join(z.BIN, words[0])] + [str(w) for w in words[1:]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    begin = time.time()
    while process.poll() is None and time.time() - begin < 60 * z.PATIENCE and not lines(metrics):
        time.sleep(0.005)
    time.sleep(seconds)
    process.send_signal(number)
    out, err = process.communicate(timeout=60 * z.PATIENCE)
    return process.returncode, out + err


def cases(folder):
    """name -> (bundle, data, options of the run): everything that state, data, random numbers and schedule depend on."""
    out = {}
    schedule = ["--lr-scheduler-type=cosine", "--lr-decay-steps=30", "--warmup-steps=5", "--shuffle-seed=3", "--seed=9"]
    adamw = {**z.ADAMW, "seed": "5"}
    sgd = {"optimizer": "sgd", "lr": "1e-2", "momentum": "0.9", "nesterov": "true", "max-grad-norm": "0.5"}
    one, three = z.cluster(folder, ["a"]), z.cluster(folder, ["a", "b", "c"])
    pipeline = z.plan(folder, "pipeline", BATCH, "abc", [(0, 3, 0, 4, "a"), (0, 3, 4, 8, "a"), (3, 5, 0, 4, "b"), (3, 5, 4, 8, "b"), (5, UNITS, 0, 4, "c"), (5, UNITS, 4, 8, "c")],
                      schedule="1f1b")
    shares = z.plan(folder, "shares", BATCH, "abc", [(0, 6, 0, 5, "a"), (0, 6, 5, 7, "b"), (0, 6, 7, 8, "c")])
    dropout = os.path.join(z.SMALL, "gpt-tiny-dropout.onnx")
    small = os.path.join(folder, "small.bin")
    np.array([(i * i) % 31 for i in range(2000)], np.uint16).tofile(small)

    def bundle(name, *words, **more):
        path = os.path.join(folder, name + ".zorse")
        z.compile(words[0], path, *words[1:], **more)
        return path

    out["adamw, one device"] = (bundle("one", MODEL, one, BATCH, LENGTH, None, adamw), DATA, schedule)
    out["adamw, pipeline of three"] = (bundle("three", MODEL, three, BATCH, LENGTH, pipeline, adamw), DATA, schedule)
    out["sgd with momentum, pipeline of three"] = (bundle("sgd", MODEL, three, BATCH, LENGTH, pipeline, {k: v for k, v in sgd.items() if k != "nesterov"}), DATA, schedule)
    out["dropout, uneven shares"] = (bundle("dropout", dropout, three, BATCH, 8, shares, adamw), small, schedule)
    # Batches without labels: their updates are skipped, and the optimizer's step falls behind.
    samples = 30 * BATCH
    ids = np.random.default_rng(1).integers(0, 31, (samples, 8)).astype(np.int64)
    labels = ids.copy()
    for step in (3, 4, 12, 20):
        labels[step * BATCH:(step + 1) * BATCH] = -100
    np.save(os.path.join(folder, "ids.npy"), ids)
    np.save(os.path.join(folder, "labels.npy"), labels)
    out["skipped steps"] = (out["dropout, uneven shares"][0], f"input_ids={folder}/ids.npy,labels={folder}/labels.npy",
                            [s for s in schedule if not s.startswith("--shuffle-seed")])
    return out


def exact():
    results = []
    randoms = random.Random(4)
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, (bundle, data, options)) in enumerate(cases(folder).items()):
            if QUICK and number not in (1, 4):
                continue
            where = os.path.join(folder, str(number))
            os.mkdir(where)
            unbroken, _, _ = run(bundle, data, 30, where + "/m0", "--save-weights", where + "/c0", *options)
            skipped = sum(bool(m[4]) for m in unbroken.values())
            # In two halves, and with a snapshot at every step.
            for every in (0, 1, 4):
                snapshots = f"{where}/s{every}"
                words = ["--checkpoint-dir", snapshots, "--save-interval", every, *options]
                first, _, _ = run(bundle, data, 11, where + "/m1", *words)
                second, _, _ = run(bundle, data, 30, where + "/m2", "--resume", "--save-weights", where + "/c1", *words)
                seen = {**first, **second}
                good = seen == unbroken and min(second) == 12 and content(where + "/c0") == content(where + "/c1")
                results.append(say(f"{name}: 11 steps and 19 more, a snapshot every {every or 'end'}", good, f"{skipped} steps skipped"))
            # The same with a process per device, and with a change between threads and processes.
            if "three" in name:
                for ways in (("--spawn", "--spawn"), ("--in-process", "--spawn"), ("--spawn", "--in-process")):
                    snapshots = f"{where}/s{''.join(ways)}"
                    words = ["--checkpoint-dir", snapshots, "--save-interval", 4, *options]
                    first, _, _ = run(bundle, data, 11, where + "/m3", *words, ways[0])
                    second, _, _ = run(bundle, data, 30, where + "/m4", "--resume", "--save-weights", where + "/c1", *words, ways[1])
                    good = {**first, **second} == unbroken and min(second) == 12 and content(where + "/c0") == content(where + "/c1")
                    results.append(say(f"{name}: 11 steps {ways[0]} and 19 more {ways[1]}", good))
            # Interrupted, and killed repeatedly.
            for signals in ([signal.SIGTERM], [signal.SIGKILL] * (2 if QUICK else 6)):
                snapshots = f"{where}/k{len(signals)}{signals[0]}"
                words = ["zorse-run", bundle, "--data", data, "--max-steps", 30, "--checkpoint-dir", snapshots, "--save-interval", 3, *options]
                seen, codes, disagree = {}, [], 0
                for i, number_ in enumerate(signals):
                    metrics = f"{snapshots}.{i}"
                    code, _ = killed([*words, "--metrics-file", metrics, *(["--resume"] if i else [])], number_, randoms.uniform(0, 0.15), metrics)
                    codes.append(code)
                    part = lines(metrics)
                    disagree += sum(seen.get(s, v) != v for s, v in part.items())  # repeated steps
                    seen.update(part)
                code, out, err = z.call(*words, "--metrics-file", snapshots + ".last", "--resume", "--save-weights", where + "/c2", ok=False)
                part = lines(snapshots + ".last")
                disagree += sum(seen.get(s, v) != v for s, v in part.items())
                seen.update(part)
                good = code == 0 and disagree == 0 and content(where + "/c0") == content(where + "/c2") and all(unbroken[s] == v for s, v in seen.items())
                if signals[0] == signal.SIGTERM:
                    good = good and seen == unbroken and codes[0] in (130, 0)
                results.append(say(f"{name}: {len(signals)} x {signals[0].name}, then to the end", good, f"exit codes {codes}, {30 - len(part)} steps kept at last" + ("" if code == 0 else err)))
    z.finish(results)


def plans():
    """Losses on 5 devices, then 3, then 7, compared with the uninterrupted run on 5."""
    b, u = BATCH, UNITS
    layouts = [
        ("five", "abcde", [(0, 4, 0, 5, "a"), (4, u, 0, 5, "b"), (0, 3, 5, 8, "c"), (3, 6, 5, 8, "d"), (6, u, 5, 8, "e")], {}),
        ("three", "abc", [(0, 3, 0, 4, "a"), (0, 3, 4, 8, "a"), (3, 5, 0, 4, "b"), (3, 5, 4, 8, "b"), (5, u, 0, 4, "c"), (5, u, 4, 8, "c")], {"schedule": "1f1b"}),
        ("seven", "abcdefg", [(0, 2, 0, 4, "a"), (0, 2, 4, 8, "a"), (2, 5, 0, 5, "b"), (2, 5, 5, 8, "c"), (5, u, 0, 3, "d"), (5, u, 3, 6, "e"), (5, u, 6, 8, "f")],
         {"state": {"groups": [{"group": "*", "owners": [{"device": d, "fraction": s / 100} for d, s in zip("abcdefg", (5, 0, 10, 25, 15, 5, 40))]}]}}),
    ]
    results = []
    stops = (8, 16, 24) if QUICK else (40, 80, 120)
    with tempfile.TemporaryDirectory() as folder:
        for model in ("gpt",) if QUICK else ("gpt", "llama"):
            path, data = os.path.join(z.SMALL, model + ".onnx"), os.path.join(z.SMALL, model + ".tokens.bin")
            for precision, limit in (("f32", 1e-5), ("f64", 1e-9)):
                bundles = {}
                for name, devices, cells, more in layouts:
                    bundles[name] = os.path.join(folder, f"{model}-{precision}-{name}.zorse")
                    z.compile(path, bundles[name], z.cluster(folder, devices), b, LENGTH, z.plan(folder, name, b, devices, cells, **more), z.ADAMW, precision)
                tag = os.path.join(folder, f"{model}-{precision}")
                options = ["--shuffle-seed=2", "--lr-scheduler-type=cosine", f"--lr-decay-steps={stops[-1]}"]
                unbroken, _, _ = run(bundles["five"], data, stops[-1], tag + ".m", "--save-weights", tag + ".c", *options)
                seen = {}
                for (name, _, _, _), stop, way in zip(layouts, stops, ("--spawn", "--in-process", "--spawn")):
                    part, _, _ = run(bundles[name], data, stop, tag + ".p", "--checkpoint-dir", tag + ".s", "--resume", "--save-weights", tag + ".d", *options, way)
                    seen.update(part)
                results.append(say(f"{model} {precision}: every step once", sorted(seen) == sorted(unbroken)))
                results.append(z.check(f"{model} {precision}: losses, 5 devices to {stops[0]}, 3 to {stops[1]}, 7 to {stops[2]}",
                                       z.relative([seen[s][1] for s in sorted(seen)], [unbroken[s][1] for s in sorted(unbroken)]), limit))
                results.append(z.check(f"{model} {precision}: gradient norms", z.relative([seen[s][2] for s in sorted(seen)], [unbroken[s][2] for s in sorted(unbroken)]), 10 * limit))
                if precision == "f64":
                    a, c = z.safetensors(tag + ".c"), z.safetensors(tag + ".d")
                    results.append(z.check(f"{model} {precision}: parameters at the end", max(float(np.max(np.abs(a[k] - c[k]))) for k in a), limit))
    z.finish(results)


def refusals():
    results = []

    def refused(name, code, err, *words):
        return say(name, code == 1 and all(w in err for w in words) and err.startswith("error: "), err.strip()[:400])

    with tempfile.TemporaryDirectory() as folder:
        bundle, other, half = (os.path.join(folder, n + ".zorse") for n in ("a", "b", "half"))
        cluster = z.cluster(folder, ["a", "b"])
        z.compile(MODEL, bundle, cluster, BATCH, LENGTH)
        z.compile(MODEL, other, cluster, BATCH, LENGTH, training={**z.ADAMW, "betas": "0.8,0.9"})
        z.compile(MODEL, half, cluster, BATCH // 2, LENGTH)
        s, m = os.path.join(folder, "s"), os.path.join(folder, "m")
        take = ["--checkpoint-dir", s, "--save-interval", 2]
        run(bundle, DATA, 8, m, *take)
        fresh = (os.path.join(folder, f"m{i}") for i in range(100))  # metrics of a resumed run are appended to the file

        _, code, err = run(bundle, DATA, 10, m, *take, ok=False)
        results.append(refused("a directory with snapshots is not overwritten", code, err, "--resume", "step-00000008"))
        _, code, err = run(bundle, DATA, 10, m, *take, "--resume", "--shuffle-seed=3", "--lr=0.5", ok=False)
        results.append(refused("another order and learning rate", code, err, "shuffle: none in the checkpoint, 3 here", "learning rate: 0.0003 in the checkpoint, 0.5 here", "--allow-config-change"))
        _, code, err = run(other, DATA, 10, m, *take, "--resume", ok=False)
        results.append(refused("another optimizer", code, err, "beta1: 0.9 in the checkpoint, 0.8 here"))
        text = os.path.join(folder, "other.bin")
        np.random.default_rng(0).integers(0, 31, 3000).astype(np.uint16).tofile(text)
        _, code, err = run(bundle, text, 10, m, *take, "--resume", ok=False)
        results.append(refused("other data", code, err, "data: uint16 tokens"))
        llama = os.path.join(folder, "llama.zorse")
        z.compile(os.path.join(z.SMALL, "llama.onnx"), llama, cluster, BATCH, LENGTH)
        _, code, err = run(llama, os.path.join(z.SMALL, "llama.tokens.bin"), 10, m, *take, "--resume", "--allow-config-change", ok=False)
        results.append(refused("another model", code, err, "another model", "not in the checkpoint"))
        # Another matrix library rounds differently: this is reported, and only then.
        def with_library(name, *more):
            before = dict(os.environ)
            os.environ["ZORSE_GEMM"] = name
            try:
                return run(bundle, DATA, 4, next(fresh), "--checkpoint-dir", os.path.join(folder, "library"), *more, ok=False)
            finally:
                os.environ.clear()
                os.environ.update(before)

        _, code, err = with_library("onednn", "--save-interval", 2)
        if "expects \"openblas\"" in err:
            print("skip another matrix library: built without oneDNN")
        else:
            _, code, err = with_library("onednn", "--resume")
            results.append(say("the same matrix library is not worth a note", code == 0 and "matrices were multiplied" not in err, err.strip()))
            _, code, err = with_library("openblas", "--resume")
            results.append(say("another matrix library is", code == 0 and "matrices were multiplied by onednn" in err and "here by openblas" in err and "except for rounding" in err, err.strip()))
        # The data continues at its position.
        after, code, err = run(half, DATA, 10, next(fresh), *take, "--resume", "--allow-config-change", ok=False)
        results.append(say("another batch, allowed", code == 0 and sorted(after) == [9, 10] and "batch: 8 in the checkpoint, 4 here" in err, err.strip()))
        newest = os.path.join(s, max(n for n in os.listdir(s) if n.startswith("step-")))
        with open(os.path.join(newest, "index.json")) as f:
            consumed = json.load(f)["consumed_samples"]
        results.append(say("samples consumed", consumed == 8 * 8 + 2 * 4, str(consumed)))

        # Damaged files.
        victim = next(os.path.join(newest, n) for n in sorted(os.listdir(newest)) if n.endswith(".safetensors"))
        with open(victim, "r+b") as f:
            f.seek(-5, os.SEEK_END)
            byte = f.read(1)
            f.seek(-5, os.SEEK_END)
            f.write(bytes([byte[0] ^ 1]))
        code, out, _ = z.call("zorse-export", s, "--list")
        results.append(say("zorse-export --list shows it", out.count("damaged: ") == 1 and out.count(" complete\n") == 1, out))
        after, code, err = run(half, DATA, 10, next(fresh), *take, "--resume", "--allow-config-change", ok=False)
        results.append(say("a damaged snapshot is passed over", code == 0 and sorted(after) == [9, 10] and "passed over" in err and os.path.basename(victim) in err and "checksum" in err, err.strip()))

        # A full disk: training continues, older snapshots stay, and the end is an error only if the last snapshot
        # fails.
        small = os.path.join(folder, "small")
        os.mkdir(small)
        if os.geteuid() == 0 and subprocess.run(["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", small], capture_output=True).returncode == 0:
            try:
                take = ["--checkpoint-dir", os.path.join(small, "s"), "--save-interval", 1, "--save-total-limit", 100]
                after, code, err = run(bundle, DATA, 12, next(fresh), *take, ok=False)
                kept = [n for n in os.listdir(os.path.join(small, "s")) if n.startswith("step-")]
                results.append(say("full disk", code == 1 and len(after) == 12 and "No space left on device" in err and kept and "the last checkpoint, of step 12, is not complete" in err,
                                   f"{len(kept)} kept; " + err.strip()[-300:]))
                after, code, err = run(bundle, DATA, 12, next(fresh), "--checkpoint-dir", os.path.join(small, "s"), "--resume", "--save-total-limit", 1, ok=False)
                results.append(say("resumed from the newest of them", min(after) == len(kept) + 1, err.strip()[-300:]))
            finally:
                subprocess.run(["umount", "-l", small])
        else:
            print("skipped: full disk: mounting a small file system needs root")
    z.finish(results)


if __name__ == "__main__":
    {"exact": exact, "plans": plans, "refusals": refusals}[sys.argv[1]]()
