"""Python loses no training results: transformers models of six families train, resume, are evaluated and interrupted,
in a script, in notebook cells, and in a separate process. If something fails after training, the weights are kept.

    python_families.py [--families llama,gpt2,...] [--quick]        (exit code 77 without PyTorch and transformers)
"""
import argparse
import asyncio
import contextlib
import copy
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings

import numpy as np

import harness as z
from python_package_torch import ensure_torch

os.environ["ZORSE_BIN"] = z.BIN
sys.path.insert(0, os.path.join(z.ROOT, "python"))

FAMILIES = ("llama", "gpt2", "opt", "bert", "vit", "t5")
VOCABULARY, LENGTH, BATCH = 64, 12, 8
TEXT = dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, max_position_embeddings=64)
SPECIAL = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)


def model_of(family):
    """A tiny model of transformers, and its data: samples of a table that it can learn."""
    import torch
    import transformers as t

    torch.manual_seed(3)
    numbers = np.random.default_rng(0)
    ids = np.cumsum(numbers.integers(1, 3, (64, LENGTH)), axis=1) % (VOCABULARY - 3) + 3
    pixels = numbers.normal(size=(64, 3, 32, 32)).astype(np.float32)
    made = {
        "llama": lambda: (t.LlamaForCausalLM(t.LlamaConfig(**TEXT, **SPECIAL, num_key_value_heads=2)), ids.ravel()),
        "gpt2": lambda: (t.GPT2LMHeadModel(t.GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **SPECIAL)), ids.ravel()),
        "opt": lambda: (t.OPTForCausalLM(t.OPTConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=48, max_position_embeddings=64, dropout=0, **SPECIAL)), ids.ravel()),
        "bert": lambda: (t.BertForMaskedLM(t.BertConfig(**TEXT, **SPECIAL, hidden_dropout_prob=0, attention_probs_dropout_prob=0)), {"input_ids": ids, "labels": np.where(ids % 3, -100, ids)}),
        "vit": lambda: (t.ViTForImageClassification(t.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=32, patch_size=8, num_labels=5)),
                        {"pixel_values": pixels, "labels": ids[:, 0] % 5}),
        "t5": lambda: (t.T5ForConditionalGeneration(t.T5Config(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_decoder_layers=2, num_heads=4, decoder_start_token_id=0, dropout_rate=0,
                                                               **SPECIAL)), {"input_ids": ids, "labels": ids[:, :8]}),
    }
    return made[family]()


def loss_in_pytorch(module, data):
    """The loss of all samples, computed by the module."""
    import torch

    module.eval()
    if not isinstance(data, dict):
        rows = data[:len(data) // LENGTH * LENGTH].reshape(-1, LENGTH)
        data = {"input_ids": rows, "labels": rows}
    samples = len(next(iter(data.values()))) // BATCH * BATCH
    with torch.no_grad():
        losses = [float(module(**{k: torch.as_tensor(v[i:i + BATCH]).contiguous() for k, v in data.items()}).loss) for i in range(0, samples, BATCH)]
        weights = [int((data["labels"][i:i + BATCH] != -100).sum()) for i in range(0, samples, BATCH)]
    return float(np.average(losses, weights=weights))


@contextlib.contextmanager
def temporary_files_in(folder):
    """Files that a run keeps for its caller are removed with the test."""
    before, tempfile.tempdir = tempfile.tempdir, folder
    try:
        yield
    finally:
        tempfile.tempdir = before


class Trial:
    """Training of one family, with the results of its checks."""

    def __init__(self, family, folder):
        self.family, self.folder, self.found = family, folder, []
        self.module, self.data = model_of(family)
        self.options = dict(global_batch_size=BATCH, cluster=z.cluster(folder, ["a", "b"]), lr=1e-2, save_interval=3, **({} if isinstance(self.data, dict) else {"seq_length": LENGTH}))

    def holds(self, what, good):
        self.found.append((f"{self.family}: {what}", bool(good)))

    def holds_weights(self, what, module, run):
        """The module has the run's weights, under the names of both."""
        tensors = dict(module.named_parameters(remove_duplicate=False))
        self.holds(what, all(name in tensors for name in run.weights) and
                   all(name in run.weights and np.array_equal(p.detach().numpy(), run.weights[name]) for name, p in tensors.items()))

    def trained(self, module, steps, snapshots, **more):
        import zorse

        return zorse.train(module, self.data, max_steps=steps, checkpoint_dir=os.path.join(self.folder, snapshots), **{**self.options, **more})

    def train_and_resume(self):
        import zorse
        from zorse._onnx import read_metadata

        module = copy.deepcopy(self.module)
        run = self.trained(module, 6, "resumed", output=os.path.join(self.folder, "kept"), eval_data=self.data, eval_interval=6)
        self.holds("trains", len(run.steps) == 6 and run.steps[-1].loss < run.steps[0].loss)
        self.holds_weights("the module has its trained weights, tied names too", module, run)
        found = zorse.evaluate(run.bundle, self.data, load_weights=run.weights.path)
        self.holds(f"an evaluation is PyTorch's on the trained module ({found.loss:.6f})", abs(found.loss - loss_in_pytorch(module, self.data)) < 2e-5 * found.loss)
        self.holds("the facts of its file are read without onnx", len(read_metadata(os.path.join(self.folder, "kept", "model.onnx"))["parameters"]) == len(dict(module.named_parameters(remove_duplicate=False))))
        again = zorse.train(run.bundle, self.data, max_steps=12, checkpoint_dir=os.path.join(self.folder, "resumed"), save_interval=3, resume=True, metrics_file=os.path.join(self.folder, "kept", "metrics.jsonl"))
        self.holds("resumes from its snapshot", [s.step for s in again.steps] == list(range(7, 13)))
        with open(os.path.join(self.folder, "kept", "metrics.jsonl")) as file:
            self.holds("and keeps the metrics of before", [m["step"] for m in map(json.loads, file) if "loss" in m] == list(range(1, 13)))
        whole = zorse.train(run.bundle, self.data, max_steps=12, load_weights=None)
        self.holds("to the bits of a run without a break", whole.losses[6:] == again.losses and all(np.array_equal(whole.weights[n], again.weights[n]) for n in whole.weights))

    def resume_module(self):
        """A partly trained module resumes from the snapshot."""
        module = copy.deepcopy(self.module)
        self.trained(module, 3, "module")
        run = self.trained(module, 6, "module", resume=True)
        self.holds("a module resumes", [s.step for s in run.steps] == [4, 5, 6])
        self.holds_weights("and has the weights of the end", module, run)

    def interrupt(self):
        module = copy.deepcopy(self.module)

        def stop(step):
            if step.step == 4:
                os.kill(os.getpid(), signal.SIGINT)

        run = None
        try:
            self.trained(module, 100000, "interrupted", on_step=stop)
        except KeyboardInterrupt as error:
            run = error.run
            self.holds("an interrupt reports where the weights are", any(run.weights.path in note for note in error.__notes__))
        self.holds("an interrupt ends training in order", run is not None and 4 <= len(run.steps) < 5000)
        self.holds_weights("and its weights are in the module", module, run)
        more = self.trained(module, run.steps[-1].step + 2, "interrupted", resume=True)
        self.holds("from which it resumes", len(more.steps) == 2)

    def fail_after_training(self):
        """An error after the last step, or in a callback, loses no weights."""
        import zorse
        import zorse._train

        module = copy.deepcopy(self.module)
        bundle, real = None, zorse._train.load_into
        try:
            zorse._train.load_into = lambda *a, **k: 1 // 0
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                run = self.trained(module, 3, "unloaded")
            bundle = run.bundle
            self.holds("weights that cannot be put back are a warning, and there", len(run.weights) > 0 and any("not copied" in str(w.message) for w in said))
        finally:
            zorse._train.load_into = real
        error = None
        try:
            zorse.train(bundle, self.data, max_steps=100000, on_step=lambda s: 1 // (s.step - 3))
        except ZeroDivisionError as problem:
            error = problem
        self.holds("an exception of a callback is passed on, with the run", error is not None and len(error.run.weights) == len(run.weights) and os.path.exists(error.run.weights.path))
        page = os.path.join(self.folder, "page")
        os.mkdir(page)
        try:
            done = zorse.train(bundle, self.data, max_steps=3, metrics_file=os.path.join(self.folder, "full"), html_report=os.path.join(page, "p.html"), on_step=lambda s: shutil.rmtree(page, ignore_errors=True))
        except zorse.ZorseError as problem:
            done = getattr(problem, "run", None)
        self.holds("an output that cannot be written costs no weights", done is not None and len(done.weights) == len(run.weights))

    def all(self, quick):
        self.train_and_resume()
        if not quick:
            self.resume_module()
            self.interrupt()
        self.fail_after_training()
        return self.found


def here(family, quick):
    with tempfile.TemporaryDirectory() as folder, temporary_files_in(folder):
        return Trial(family, folder).all(quick)


def as_notebook(family):
    """Runs cells in one namespace while an event loop runs. Another thread interrupts only this process."""
    found = []
    cells = ["import zorse, os\nfrom python_families import model_of\nmodule, data = model_of(family)\nbefore = {n: p.detach().clone() for n, p in module.named_parameters()}",
             "run = zorse.train(module, data, max_steps=3, global_batch_size=8, cluster=cluster, output=folder + '/out', lr=1e-2, checkpoint_dir=folder + '/s', save_interval=1, **seq)",
             "shown = repr(run) + repr(run.steps[-1]) + repr(run.weights)",
             "try:\n    zorse.train(module, data, max_steps=1000000, global_batch_size=8, cluster=cluster, lr=1e-2, checkpoint_dir=folder + '/s', save_interval=1000, resume=True, on_step=lambda s: started.set(), **seq)\n"
             "except KeyboardInterrupt as error:\n    interrupted = error.run",
             "last = zorse.train(module, data, max_steps=interrupted.steps[-1].step + 1, global_batch_size=8, cluster=cluster, lr=1e-2, checkpoint_dir=folder + '/s', resume=True, **seq)"]
    with tempfile.TemporaryDirectory() as folder, temporary_files_in(folder):
        started = threading.Event()
        scope = dict(family=family, folder=folder, cluster=z.cluster(folder, ["a"]), started=started, seq={} if family in ("bert", "vit", "t5") else {"seq_length": LENGTH})

        def interrupt():
            started.wait()
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt, daemon=True).start()

        async def run():
            signal.signal(signal.SIGINT, signal.default_int_handler)  # as a kernel does while a cell runs
            for cell in cells:
                exec(compile(cell, "<cell>", "exec"), scope)
                await asyncio.sleep(0)

        asyncio.run(run())
        found.append((f"{family}: cells of a notebook train", len(scope["run"].steps) == 3 and len(scope["shown"]) < 1000))
        found.append((f"{family}: a cell is interrupted", scope["interrupted"].steps[0].step == 4))
        found.append((f"{family}: the next cell continues", scope["last"].steps[-1].step == scope["interrupted"].steps[-1].step + 1))
    return found


def in_process(what, family, quick):
    """Runs `here` or `as_notebook` in a process without a terminal, in a separate session."""
    code = f"import json, warnings\nwarnings.filterwarnings('ignore')\nimport python_families as f\nfound = f.{what}({family!r}{f', {quick}' if what == 'here' else ''})\nprint('found', json.dumps(found))"
    done = subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, start_new_session=True, timeout=600 * max(1, z.PATIENCE / 4),
                          cwd=os.path.dirname(os.path.abspath(__file__)))
    lines = [line for line in done.stdout.splitlines() if line.startswith("found ")]
    return json.loads(lines[0][6:]) if lines else [(f"{family}: a separate process: exit code {done.returncode}: {done.stderr.strip().splitlines()[-3:]}", False)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--quick", action="store_true", help="one family; a notebook and a process of another one are left out")
    a = parser.parse_args()
    ensure_torch()
    try:
        import transformers  # noqa: F401
    except ImportError:
        print("no transformers (tools/python-env.sh installs it)")
        sys.exit(77)
    warnings.filterwarnings("ignore")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
    results = []
    for family in ("llama",) if a.quick else a.families.split(","):
        found = here(family, a.quick)
        if not a.quick:
            found += [(f"{name}, in a process", good) for name, good in in_process("here", family, True)] + in_process("as_notebook", family, True)
        for name, good in found:
            print(f"{'ok  ' if good else 'FAIL'} {name}", flush=True)
            results.append(good)
    z.finish(results, "nothing is lost from Python")


if __name__ == "__main__":
    main()
