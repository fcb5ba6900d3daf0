"""The Python package: training is bit-identical to the command line tools; callbacks, stopping, errors in the tools'
words, and plans. --torch also trains PyTorch modules (exit code 77 without PyTorch).
"""
import contextlib
import filecmp
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import typing
import warnings

import numpy as np

import harness as z

os.environ["ZORSE_BIN"] = z.BIN
sys.path.insert(0, os.path.join(z.ROOT, "python"))
import zorse  # noqa: E402

GPT = os.path.join(z.SMALL, "gpt.onnx")
TOKENS = os.path.join(z.SMALL, "gpt.tokens.bin")


def said(results, name, kind, text, function):
    """Calling `function` must raise a `kind` with `text` in its message."""
    try:
        function()
        found = "nothing"
    except kind as error:
        found = str(error)
    except Exception as error:  # of another type
        found = f"{type(error).__name__}: {error}"
    good = text in found
    print(f"{'ok  ' if good else 'FAIL'} {name}: {found.splitlines()[0][:150]}", flush=True)
    results.append(good)


def holds(results, name, good):
    print(f"{'ok  ' if good else 'FAIL'} {name}", flush=True)
    results.append(bool(good))


def commands(folder, cluster):
    """Results of the commands: losses and checkpoint."""
    bundle, checkpoint = os.path.join(folder, "commands.zorse"), os.path.join(folder, "commands.safetensors")
    z.compile(GPT, bundle, cluster, 8, 16)
    return [m["loss"] for m in z.run(bundle, TOKENS, 6, checkpoint=checkpoint)], checkpoint


ADAMW = dict(optimizer="adamw", lr=3e-4, warmup_steps=10, max_grad_norm=1.0, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


def without_torch(results, folder):
    devices = ["a", ("b", 2e10)]
    cluster = z.cluster(folder, devices)
    losses, checkpoint = commands(folder, cluster)
    mapping = {"name": "test", "nodes": [{"name": "here", "devices": [{"name": d if isinstance(d, str) else d[0], "kind": "cpu", "flops_per_second": 1e10 if isinstance(d, str) else d[1],
                                                                          "memory": "2GiB", "threads": 1} for d in devices]}]}
    output = os.path.join(folder, "kept")
    steps = []
    run = zorse.train(GPT, TOKENS, max_steps=6, global_batch_size=8, seq_length=16, cluster=mapping, output=output, metrics_file=os.path.join(folder, "lines.jsonl"), on_step=steps.append, **ADAMW)
    holds(results, "losses are the commands'", run.losses == losses)
    holds(results, "the checkpoint is the commands', byte for byte", filecmp.cmp(os.path.join(output, "trained.safetensors"), checkpoint, shallow=False))
    holds(results, "every step is called back, in order", [s.step for s in steps] == list(range(1, 7)) and steps == run.steps)
    holds(results, "lines of metrics are kept", sum(1 for _ in open(os.path.join(folder, "lines.jsonl"))) == 6)
    expected = z.safetensors(checkpoint)
    holds(results, "weights are the checkpoint's", list(run.weights) == list(expected) and all(np.array_equal(run.weights[n], expected[n]) for n in expected))
    tokens = np.fromfile(TOKENS, "<u2")[512:] if np.fromfile(TOKENS, "<i4", 1)[0] == 20240520 else np.fromfile(TOKENS, "<u2")
    again = zorse.train(zorse.compile(GPT, os.path.join(folder, "b.zorse"), global_batch_size=8, cluster=cluster, seq_length=16, quiet=True, **ADAMW), tokens.astype(np.int64), max_steps=6, eval_data=TOKENS, eval_interval=3)
    holds(results, "token ids in an array, and evaluations", again.losses == losses and [e.step for e in again.evaluations] == [3, 6])
    wide = np.concatenate([tokens.astype(np.int64), [70000]])  # 32 bits; the last token is never read
    holds(results, "token ids beyond 16 bits", zorse.train(again.bundle, wide, max_steps=2).losses == losses[:2])
    windows = np.lib.stride_tricks.sliding_window_view(tokens.astype(np.int64), 17)[: 16 * 64: 16]
    arrays = zorse.train(again.bundle, {"input_ids": windows[:, :-1], "labels": windows[:, 1:]}, max_steps=2)
    holds(results, "arrays by input name", len(arrays.losses) == 2 and all(np.isfinite(arrays.losses)))
    stopped = zorse.train(again.bundle, TOKENS, max_steps=100000, on_step=lambda s: s.step < 5)
    holds(results, f"a callback ends training (after step {len(stopped.losses)}), with weights", stopped.stopped and 5 <= len(stopped.losses) < 1000 and len(stopped.weights) == len(expected))
    report = zorse.plan(GPT, cluster=cluster, global_batch_size=8, seq_length=16)
    path = os.path.join(folder, "plan.json")
    report.save(path)
    holds(results, "a plan is shown, kept and compiled", report.step_seconds > 0 and "<iframe" in report._repr_html_() and
          zorse.train(GPT, TOKENS, max_steps=2, global_batch_size=8, seq_length=16, cluster=cluster, plan=path, **ADAMW).losses[0] > 0)
    shape = zorse.plan(model_shape="llama-7b,layers=4,hidden=512,ffn=1024,heads=8,kv_heads=8", seq_length=1024, cluster=os.path.join(z.ROOT, "models", "clusters", "workstation.yaml"), global_batch_size=4, precision="bf16", search_budget=20,
                       optimizer="sgd")
    holds(results, "a plan for a shape", shape.step_seconds > 0)
    said(results, "an unknown option names the near one", TypeError, "did you mean 'weight_decay'", lambda: zorse.compile(GPT, "x", global_batch_size=8, weight_deca=1))
    said(results, "an old name names the new one", TypeError, "option 'steps' is now 'max_steps'", lambda: zorse.train(GPT, TOKENS, steps=2, batch=8))
    said(results, "an old name of an option", TypeError, "option 'clip' is now 'max_grad_norm'", lambda: zorse.compile(GPT, "x", global_batch_size=8, clip=1.0))
    said(results, "an option of compiling is refused for a bundle", TypeError, "no option 'precision'", lambda: zorse.train(again.bundle, TOKENS, max_steps=1, precision="bf16"))
    said(results, "a bundle has its batch", TypeError, "a bundle has its batch", lambda: zorse.train(again.bundle, TOKENS, max_steps=1, global_batch_size=4))
    said(results, "batch is missing", TypeError, "expected global_batch_size", lambda: zorse.train(GPT, TOKENS, max_steps=1))
    said(results, "errors are the tools'", zorse.ZorseError, "--max-grad-norm: expects a finite number", lambda: zorse.compile(GPT, os.path.join(folder, "y"), global_batch_size=8, seq_length=16, cluster=cluster, max_grad_norm=-1.0))
    said(results, "a module is for zorse.train", TypeError, "zorse.export(module", lambda: zorse.compile(object(), "x", global_batch_size=8))
    said(results, "no such model", zorse.ZorseError, "nowhere.onnx", lambda: zorse.plan("nowhere.onnx", cluster=cluster, global_batch_size=8))
    said(results, "data of a wrong kind", zorse.ZorseError, "expected a path, arrays by the names", lambda: zorse.train(again.bundle, np.zeros((2, 3)), max_steps=1))
    said(results, "inputs of unlike lengths", zorse.ZorseError, "the same number of samples for every input", lambda: zorse.train(again.bundle, {"a": np.zeros(3), "b": np.zeros(4)}, max_steps=1))
    said(results, "a token that is negative", zorse.ZorseError, "token ids from 0", lambda: zorse.train(again.bundle, np.array([1, -1]), max_steps=1))
    said(results, "an exception of a callback is passed on", ZeroDivisionError, "division", lambda: zorse.train(again.bundle, TOKENS, max_steps=100000, on_step=lambda s: 1 // 0))
    said(results, "a folder without tools", zorse.ZorseError, "ZORSE_BIN", lambda: without_tools())
    return run


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


# Flags that the functions set themselves or do not need: other ways of calling, inspection, and simulation.
OTHER_FLAGS = {
    "compile": "help version config cluster global-batch-size output quiet rebuild-kernels near exclude slowdown compile-to emit dump-dir",
    "run": "help version config data max-steps eval-data eval-only save-weights metrics-file quiet cluster poison poison-after-last-use thread-per-queue simulate simulate-steps bandwidth-scale compute-scale simulate-eval json",
    "plan": "help version config model-shape cluster global-batch-size plan output html json quiet verbose explain compare compare-clusters shop total-tokens max-hours max-total-price random devices",
}


def options_are_the_tools(results):
    """Every option of a tool is an option of its function, and vice versa."""
    from zorse.options import CompileOptions, PlanOptions, RunOptions
    for tool, kind in (("compile", CompileOptions), ("run", RunOptions), ("plan", PlanOptions)):
        flags = set(re.findall(r"^ *(?:-\w,)?--([a-z0-9-]+)", z.call(f"zorse-{tool}", "--help")[1], re.M))
        named = {name.replace("_", "-") for name in typing.get_type_hints(kind)}
        missing, unknown = sorted(flags - named - set(OTHER_FLAGS[tool].split())), sorted(named - flags)
        holds(results, f"options of zorse-{tool} can be given from Python" + (f": missing {missing}, unknown {unknown}" if missing or unknown else ""), not missing and not unknown)


def warnings_of_tools(results, folder):
    """A warning of a tool becomes a Python warning at the caller's line; a tool with much output does not block."""
    cluster = z.cluster(folder, ["a"])
    model = os.path.join(z.SMALL, "batch-norm", "model.onnx")
    data = ",".join(f"{key}={os.path.join(z.SMALL, 'batch-norm', key + '.npy')}" for key in ("pixels", "label"))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        bundle = zorse.compile(model, os.path.join(folder, "frozen.zorse"), global_batch_size=8, cluster=cluster, quiet=True, group_rows=0)
    ours = [w for w in said if issubclass(w.category, zorse.ZorseWarning)]
    holds(results, "a batch norm with frozen statistics is a warning, at its line", any("running statistics" in str(w.message) and w.filename == __file__ for w in ours))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run = zorse.train(model, data, max_steps=2, global_batch_size=8, cluster=cluster, group_rows=8)
    holds(results, "and group_rows trains them", not {str(w.message) for w in said} & {str(w.message) for w in ours} and any("running_mean" in n for n in run.weights))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        said_as_error = None
        try:
            zorse.compile(model, os.path.join(folder, "error.zorse"), global_batch_size=8, cluster=cluster, quiet=True, group_rows=0)
        except zorse.ZorseWarning as error:
            said_as_error = error
    holds(results, "warnings may be errors", said_as_error is not None)
    frozen = zorse.compile(GPT, os.path.join(folder, "freeze.zorse"), global_batch_size=8, cluster=cluster, seq_length=16, quiet=True, freeze=["wpe*", "*ln_1*"])
    holds(results, "several patterns of one option", frozen.path.endswith("freeze.zorse"))
    return bundle


def figures(results, run):
    """Representations of a step, a run and weights."""
    step = run.steps[2]
    holds(results, "a step has its figures", step.learning_rate > 0 and step.gradient_norm > 0 and step.tokens_per_second > 0 and step.memory_bytes > 0 and step.seconds > 0 and
          step.seconds_left >= 0 and step.steps == 6)
    shown = [repr(x) for x in (step, run, run.weights, run.bundle)]
    holds(results, f"and is short: {shown[0]}", all(len(text) < 200 for text in shown) and "left" in shown[0] and "loss" in shown[1])
    holds(results, "perplexity is exp(loss)", abs(step.perplexity - math.exp(step.loss)) < 1e-9 and run.perplexity == math.exp(run.loss))
    name = next(iter(run.weights))
    tied = zorse.Weights(run.weights.path, [["other.name", name], ["none", "nor this"]])
    holds(results, "a tied parameter has each of its names", np.array_equal(tied["other.name"], tied[name]) and "other.name" in tied and "none" not in tied and list(tied) == list(run.weights))
    with open(os.path.join(z.ROOT, "CMakeLists.txt")) as file:
        holds(results, "the version is the project's", f"VERSION {zorse.__version__} " in file.read())
    terminal, slave = os.openpty()
    code = f"import sys\nsys.path.insert(0, {os.path.join(z.ROOT, 'python')!r})\nimport zorse\nzorse.train(zorse.Bundle({run.bundle.path!r}), {TOKENS!r}, max_steps=3)"
    done = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave)
    os.close(slave)
    text = b""
    try:
        while piece := os.read(terminal, 4096):
            text += piece
    except OSError:  # end of file
        pass
    os.close(terminal)
    holds(results, "progress is shown on a terminal", done.wait() == 0 and b"3 of 3: loss" in text and b"\r" in text)


def pipes(results, folder, bundle):
    """Special files: metrics of a run in progress, as zorse-run itself writes them."""
    pipe, snapshots = os.path.join(folder, "pipe"), os.path.join(folder, "pipe-snapshots")
    zorse.train(bundle, TOKENS, max_steps=2, checkpoint_dir=snapshots)
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)
    try:
        code = z.call("zorse-run", bundle.path, "--data", TOKENS, "--max-steps", 3, "--checkpoint-dir", snapshots, "--resume", "--metrics-file", pipe, "--quiet", timeout=60)[0]
        holds(results, "a run continues with metrics in a pipe", code == 0 and json.loads(os.read(end, 4096))["step"] == 3)
    finally:
        os.close(end)


def completion(results):
    """Completions in bash, by the script that is generated from --help."""
    script = os.path.join(z.ROOT, "tools", "completion", "zorse.bash")

    def offers(*words):
        line = f"source {script}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _zorse; echo ${{COMPREPLY[@]}}"
        return subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=dict(os.environ, PATH=z.BIN + ":" + os.environ["PATH"])).stdout.split()

    holds(results, "completion of options", offers("zorse-run", "--save-") == ["--save-weights", "--save-ema", "--save-interval", "--save-total-limit"])
    holds(results, "completion of values", offers("zorse-compile", "--optimizer", "ad") == ["adamw", "adam", "adagrad", "adadelta", "adamax", "adafactor", "adamw8bit", "adam8bit"])


def main():
    results = []
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder  # files that a run keeps for its caller are removed with the test
        if "--torch" in sys.argv:
            import python_package_torch
            python_package_torch.check(results, folder, holds, said)
        else:
            run = without_torch(results, folder)
            options_are_the_tools(results)
            warnings_of_tools(results, folder)
            figures(results, run)
            pipes(results, folder, run.bundle)
            completion(results)
            versions = {t: z.call(f"zorse-{t}", "--version")[1].split()[:2] for t in ("compile", "run", "plan", "cluster", "profile", "inspect", "export")}
            holds(results, "every tool prints its version", all(v[0] == f"zorse-{t}" and v[1].count(".") == 2 for t, v in versions.items()))
    z.finish(results, "training from Python leaves the bits of the commands")


main()
