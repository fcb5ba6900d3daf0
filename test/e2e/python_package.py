"""The Python package: it trains to the bits of the commands, calls back, stops, says errors in the tools' words, and shows plans. --torch also trains PyTorch modules
(exit code 77 without PyTorch).
"""
import contextlib
import filecmp
import os
import subprocess
import sys
import tempfile

import numpy as np

import harness as z

os.environ["ZORSE_BIN"] = z.BIN
sys.path.insert(0, os.path.join(z.ROOT, "python"))
import zorse  # noqa: E402

GPT = os.path.join(z.SMALL, "gpt.onnx")
TOKENS = os.path.join(z.SMALL, "gpt.tokens.bin")


def said(results, name, kind, text, function):
    """Calling `function` must raise a `kind` whose message has `text`."""
    try:
        function()
        found = "nothing"
    except kind as error:
        found = str(error)
    except Exception as error:  # of another kind
        found = f"{type(error).__name__}: {error}"
    good = text in found
    print(f"{'ok  ' if good else 'FAIL'} {name}: {found.splitlines()[0][:150]}", flush=True)
    results.append(good)


def holds(results, name, good):
    print(f"{'ok  ' if good else 'FAIL'} {name}", flush=True)
    results.append(bool(good))


def commands(folder, cluster):
    """What the commands leave: losses and checkpoint."""
    bundle, checkpoint = os.path.join(folder, "commands.zorse"), os.path.join(folder, "commands.safetensors")
    z.compile(GPT, bundle, cluster, 8, 16)
    return [m["loss"] for m in z.run(bundle, TOKENS, 6, checkpoint=checkpoint)], checkpoint


ADAMW = dict(optimizer="adamw", lr=3e-4, warmup=10, clip=1.0, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


def without_torch(results, folder):
    devices = ["a", ("b", 2e10)]
    cluster = z.cluster(folder, devices)
    losses, checkpoint = commands(folder, cluster)
    mapping = {"name": "test", "nodes": [{"name": "here", "devices": [{"name": d if isinstance(d, str) else d[0], "kind": "cpu", "speed": 1e10 if isinstance(d, str) else d[1],
                                                                          "memory": "2GiB", "threads": 1} for d in devices]}]}
    output = os.path.join(folder, "kept")
    steps = []
    run = zorse.train(GPT, TOKENS, steps=6, batch=8, seq=16, cluster=mapping, output=output, metrics=os.path.join(folder, "lines.jsonl"), on_step=steps.append, **ADAMW)
    holds(results, "losses are the commands'", run.losses == losses)
    holds(results, "the checkpoint is the commands', byte for byte", filecmp.cmp(os.path.join(output, "trained.safetensors"), checkpoint, shallow=False))
    holds(results, "every step is called back, in order", [s.step for s in steps] == list(range(1, 7)) and steps == run.steps)
    holds(results, "lines of metrics are kept", sum(1 for _ in open(os.path.join(folder, "lines.jsonl"))) == 6)
    expected = z.safetensors(checkpoint)
    holds(results, "weights are the checkpoint's", list(run.weights) == list(expected) and all(np.array_equal(run.weights[n], expected[n]) for n in expected))
    tokens = np.fromfile(TOKENS, "<u2")[512:] if np.fromfile(TOKENS, "<i4", 1)[0] == 20240520 else np.fromfile(TOKENS, "<u2")
    again = zorse.train(zorse.compile(GPT, os.path.join(folder, "b.zorse"), batch=8, cluster=cluster, seq=16, quiet=True, **ADAMW), tokens.astype(np.int64), steps=6, evaluate=TOKENS, eval_every=3)
    holds(results, "token ids in an array, and evaluations", again.losses == losses and [e.step for e in again.evaluations] == [3, 6])
    wide = np.concatenate([tokens.astype(np.int64), [70000]])  # 32 bits; the last token is never reached
    holds(results, "token ids beyond 16 bits", zorse.train(again.bundle, wide, steps=2).losses == losses[:2])
    windows = np.lib.stride_tricks.sliding_window_view(tokens.astype(np.int64), 17)[: 16 * 64: 16]
    arrays = zorse.train(again.bundle, {"input_ids": windows[:, :-1], "labels": windows[:, 1:]}, steps=2)
    holds(results, "arrays by input name", len(arrays.losses) == 2 and all(np.isfinite(arrays.losses)))
    stopped = zorse.train(again.bundle, TOKENS, steps=100000, on_step=lambda s: s.step < 5)
    holds(results, f"a callback ends training (after step {len(stopped.losses)}), with weights", stopped.stopped and 5 <= len(stopped.losses) < 1000 and len(stopped.weights) == len(expected))
    report = zorse.plan(GPT, cluster=cluster, batch=8, seq=16)
    path = os.path.join(folder, "plan.json")
    report.save(path)
    holds(results, "a plan is shown, kept and compiled", report.step_seconds > 0 and "<iframe" in report._repr_html_() and
          zorse.train(GPT, TOKENS, steps=2, batch=8, seq=16, cluster=cluster, plan=path, **ADAMW).losses[0] > 0)
    shape = zorse.plan(shape="llama-7b,layers=4,hidden=512,ffn=1024,heads=8,kv_heads=8", seq=1024, cluster=os.path.join(z.ROOT, "models", "clusters", "workstation.yaml"), batch=4, precision="bf16", candidates=20,
                       optimizer="sgd")
    holds(results, "a plan for a shape", shape.step_seconds > 0)
    said(results, "an unknown option names the near one", TypeError, "did you mean 'weight_decay'", lambda: zorse.compile(GPT, "x", batch=8, weight_deca=1))
    said(results, "an option of compiling is refused for a bundle", TypeError, "no option 'precision'", lambda: zorse.train(again.bundle, TOKENS, steps=1, precision="bf16"))
    said(results, "a bundle has its batch", TypeError, "a bundle has its batch", lambda: zorse.train(again.bundle, TOKENS, steps=1, batch=4))
    said(results, "batch is missing", TypeError, "expected batch", lambda: zorse.train(GPT, TOKENS, steps=1))
    said(results, "errors are the tools'", zorse.ZorseError, "--clip: expects a finite number", lambda: zorse.compile(GPT, os.path.join(folder, "y"), batch=8, seq=16, cluster=cluster, clip=-1.0))
    said(results, "no such model", zorse.ZorseError, "nowhere.onnx", lambda: zorse.plan("nowhere.onnx", cluster=cluster, batch=8))
    said(results, "data of a wrong kind", zorse.ZorseError, "expected a path, arrays by the names", lambda: zorse.train(again.bundle, np.zeros((2, 3)), steps=1))
    said(results, "inputs of unlike lengths", zorse.ZorseError, "as many samples for every input", lambda: zorse.train(again.bundle, {"a": np.zeros(3), "b": np.zeros(4)}, steps=1))
    said(results, "a token that is negative", zorse.ZorseError, "token ids from 0", lambda: zorse.train(again.bundle, np.array([1, -1]), steps=1))
    said(results, "what a callback raises comes out", ZeroDivisionError, "division", lambda: zorse.train(again.bundle, TOKENS, steps=100000, on_step=lambda s: 1 // 0))
    said(results, "a folder without tools", zorse.ZorseError, "ZORSE_BIN", lambda: without_tools())


@contextlib.contextmanager
def environment(**values):
    before = {k: os.environ.get(k) for k in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            os.environ.pop(key) if value is None else os.environ.__setitem__(key, value)


def without_tools():
    with environment(ZORSE_BIN="/nowhere", PATH="/nowhere"):
        real, zorse._tools._HERE = zorse._tools._HERE, "/nowhere/python/zorse"
        try:
            zorse.tool("zorse-compile")
        finally:
            zorse._tools._HERE = real


def completion(results):
    """What bash offers, by the script that --help feeds."""
    script = os.path.join(z.ROOT, "tools", "completion", "zorse.bash")

    def offers(*words):
        line = f"source {script}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _zorse; echo ${{COMPREPLY[@]}}"
        return subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=dict(os.environ, PATH=z.BIN + ":" + os.environ["PATH"])).stdout.split()

    holds(results, "completion of options", offers("zorse-run", "--snap") == ["--snapshots", "--snapshot-every"])
    holds(results, "completion of values", offers("zorse-compile", "--optimizer", "ad") == ["adamw", "adam"])


def main():
    results = []
    with tempfile.TemporaryDirectory() as folder:
        if "--torch" in sys.argv:
            import python_package_torch
            python_package_torch.check(results, folder, holds, said)
        else:
            without_torch(results, folder)
            completion(results)
            versions = {t: z.call(f"zorse-{t}", "--version")[1].split()[:2] for t in ("compile", "run", "plan", "cluster", "profile", "inspect", "export")}
            holds(results, "every tool says its version", all(v[0] == f"zorse-{t}" and v[1].count(".") == 2 for t, v in versions.items()))
    z.finish(results, "training from Python leaves the bits of the commands")


main()
