"""Trains various PyTorch modules through zorse.train: computed tables, frozen layers, statistics, wrappers, names that
exporters confuse. A module that is not supported gives one message (exit code 77 without PyTorch). --quick: without
penalties, spectral norm and directories of the hub.
"""
import copy
import os
import subprocess
import sys
import tempfile
import warnings

import numpy as np

import harness as z
from python_package_torch import ensure_torch

os.environ["ZORSE_BIN"] = z.BIN
sys.path.insert(0, os.path.join(z.ROOT, "python"))

VOCABULARY, LENGTH, BATCH = 32, 8, 8


def modules():
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Base(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.inner, self.head = nn.Embedding(VOCABULARY, 16), nn.Linear(16, 16), nn.Linear(16, VOCABULARY)

        def features(self, x):
            return torch.tanh(self.inner(x))

        def forward(self, input_ids, labels):
            logits = self.head(self.features(self.table(input_ids)))
            return F.cross_entropy(logits.reshape(-1, VOCABULARY), labels.reshape(-1), weight=getattr(self, "of_classes", None))

    class Tables(Base):
        """Computed tables, class weights, and frozen layers of every size."""

        def __init__(self):
            super().__init__()
            angles = torch.arange(64)[:, None] / 100 ** (torch.arange(16) / 16)
            self.register_buffer("of_classes", torch.rand(VOCABULARY) + 0.5)
            self.register_buffer("sinusoids", torch.sin(angles), persistent=False)
            self.norm = nn.LayerNorm(16)
            self.gate = nn.Parameter(torch.tensor(0.5))
            for p in (*self.norm.parameters(), *self.inner.parameters(), self.gate):
                p.requires_grad_(False)

        def features(self, x):
            return self.norm(self.gate * self.inner(x + self.sinusoids[:x.shape[1]]))

    class Collision(Base):
        """Buffers named like results of PyTorch operations."""

        def __init__(self):
            super().__init__()
            for name in ("mean", "add", "val_3", "tanh"):
                self.register_buffer(name, torch.randn(16))

        def features(self, x):
            return torch.tanh(x - x.mean(-1, keepdim=True) + self.mean + self.add * self.val_3) * self.tanh + self.mean

    class Saved(Base):
        """Like PEFT's modules_to_save: the original next to its copy, frozen, with equal values and never read."""

        def __init__(self):
            super().__init__()
            self.original = copy.deepcopy(self.head).requires_grad_(False)

    class Penalty(Base):
        """Adds an L2 penalty on every parameter."""

        def forward(self, input_ids, labels):
            return super().forward(input_ids, labels) + 0.01 * sum((p ** 2).sum() for p in self.parameters())

    class Spectral(Base):
        def __init__(self):
            super().__init__()
            self.inner = nn.utils.parametrizations.spectral_norm(self.inner)

    return {kind.__name__: kind for kind in (Base, Tables, Collision, Saved, Penalty, Spectral)}


class Check:
    def __init__(self, folder):
        import torch

        self.folder, self.results, self.kinds = folder, [], modules()
        self.tokens = np.random.default_rng(0).integers(0, VOCABULARY, BATCH * 16 * LENGTH + 1)
        self.cluster = z.cluster(folder, ["a"])
        self.ids = torch.from_numpy(self.tokens[:BATCH * LENGTH].reshape(BATCH, LENGTH))
        self.labels = torch.from_numpy(self.tokens[1:BATCH * LENGTH + 1].reshape(BATCH, LENGTH))

    def holds(self, what, good):
        print(f"{'ok  ' if good else 'FAIL'} {what}", flush=True)
        self.results.append(bool(good))

    def says(self, what, function, *texts):
        """Exactly one ZorseError with a few lines."""
        import zorse

        try:
            function()
            found = "nothing"
        except zorse.ZorseError as error:
            found = str(error)
        self.holds(f"{what}: {found[:160]}", all(t in found for t in texts) and len(found) < 1200)

    def made(self, kind):
        import torch

        torch.manual_seed(5)
        return self.kinds[kind]().eval()

    def train(self, module, steps=4, **more):
        import zorse

        return zorse.train(module, self.tokens, max_steps=steps, **{**dict(global_batch_size=BATCH, seq_length=LENGTH, cluster=self.cluster, lr=1e-2, max_grad_norm=0.0, weight_decay=0.0), **more})

    def trains(self, kind):
        """The first loss is PyTorch's, names are the module's, and the module has the trained weights at the end."""
        import torch

        module = self.made(kind)
        with torch.no_grad():
            expected = float(module(self.ids, self.labels))
        names = {n for n, _ in module.named_parameters(remove_duplicate=False)}
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            run = self.train(module)
        ours = [str(w.message) for w in said if "Zorse" in w.category.__name__ and "parameters alone" not in str(w.message)]
        self.holds(f"{kind}: the first loss is PyTorch's ({run.losses[0]:.6f}, {expected:.6f})", abs(run.losses[0] - expected) < 1e-5 * expected)
        self.holds(f"{kind}: a checkpoint has parameters of the module alone" + ("" if set(run.weights) <= names else f": {sorted(set(run.weights) - names)}"), set(run.weights) <= names)
        state = dict(module.named_parameters())
        self.holds(f"{kind}: the module has the trained weights", all(np.array_equal(state[n].detach().numpy(), run.weights[n]) for n in run.weights) and run.losses[-1] != run.losses[0])
        self.holds(f"{kind}: without warnings" + (f": {ours}" if ours else ""), not ours)
        return module, run

    def frozen_from_init(self):
        """--load-weights also sets frozen parameters, small and large."""
        import torch
        import zorse

        module = self.made("Tables")
        path = os.path.join(self.folder, "tables.onnx")
        zorse.export(module, path, sequence=LENGTH, vocabulary=VOCABULARY)
        other = self.made("Tables")
        with torch.no_grad():
            for p in other.parameters():
                p.add_(torch.randn_like(p) * 0.3)
            expected = float(other(self.ids, self.labels))
        weights = os.path.join(self.folder, "other.safetensors")
        self.train(other, steps=1, lr=0.0).save(weights)
        bundle = zorse.compile(path, os.path.join(self.folder, "tables.zorse"), global_batch_size=BATCH, seq_length=LENGTH, cluster=self.cluster, quiet=True, lr=0.0)
        run = zorse.train(bundle, self.tokens, max_steps=1, load_weights=weights)
        self.holds(f"--load-weights sets frozen parameters ({run.losses[0]:.6f}, {expected:.6f})", abs(run.losses[0] - expected) < 1e-5 * expected)
        self.holds("and a checkpoint holds them under their own names", set(run.weights) == {n for n, _ in other.named_parameters()} and
                   np.array_equal(run.weights["norm.weight"], other.norm.weight.detach().numpy()))
        frozen = zorse.compile(path, os.path.join(self.folder, "flags.zorse"), global_batch_size=BATCH, seq_length=LENGTH, cluster=self.cluster, quiet=True, lr=1e-2, freeze=["head*"])
        run = zorse.train(frozen, self.tokens, max_steps=2, load_weights=weights)
        self.holds("also parameters that --freeze names", abs(run.losses[0] - expected) < 1e-5 * expected and np.array_equal(run.weights["head.weight"], other.head.weight.detach().numpy()))

    def statistics(self):
        """Running statistics are copied back to the module."""
        import torch
        from torch import nn

        class Normed(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.norm, self.last = nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)

            def forward(self, x, y):
                return ((self.last(torch.relu(self.norm(self.first(x)))) - y) ** 2).mean()

        x = np.random.default_rng(1).normal(size=(64, 5)).astype(np.float32)
        data, module = {"x": x, "y": x[:, :1].copy()}, Normed()
        import zorse

        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            run = zorse.train(module, data, max_steps=4, global_batch_size=16, cluster=self.cluster, group_rows=16)
        self.holds("running statistics are trained and put back", np.array_equal(module.norm.running_mean.numpy(), run.weights["norm.running_mean"]) and float(module.norm.running_mean.abs().max()) > 0 and
                   not any("not copied" in str(w.message) for w in said))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            zorse.train(Normed(), data, max_steps=1, global_batch_size=16, cluster=self.cluster, group_rows=0)
        other = Normed()
        with torch.no_grad():
            other.norm.running_mean.add_(0.5)
            other.norm.running_var.mul_(3)
            expected = float(other.eval()(torch.from_numpy(x[:16]), torch.from_numpy(data["y"][:16])))
        path, weights = os.path.join(self.folder, "normed.onnx"), os.path.join(self.folder, "normed.safetensors")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            zorse.train(other, data, max_steps=1, global_batch_size=16, cluster=self.cluster, lr=0.0, max_grad_norm=0.0, group_rows=0).save(weights)
            zorse.export(Normed(), path, inputs={k: torch.from_numpy(v[:2]) for k, v in data.items()})
            run = zorse.train(path, data, max_steps=1, global_batch_size=16, cluster=self.cluster, load_weights=weights, group_rows=0)
        self.holds(f"frozen statistics are set by --load-weights ({run.losses[0]:.6f}, {expected:.6f})", abs(run.losses[0] - expected) < 1e-5 * expected)
        self.holds("and frozen ones are a warning", any("running statistics" in str(w.message) for w in said))

    def wrappers(self):
        import torch

        plain = self.train(self.made("Base"))
        module = self.made("Base")
        run = self.train(torch.nn.DataParallel(torch.compile(module)))
        self.holds("compiled and wrapped modules train as they are inside", run.losses == plain.losses and np.array_equal(module.head.weight.detach().numpy(), run.weights["head.weight"]))
        self.says("module.half()", lambda: self.train(self.made("Base").half()), "float16", "module.float()", "precision='f16'")
        self.says("a module without values", lambda: self.train(self.made("Base").to("meta")), "has no values")
        self.says("no module", lambda: self.train(42), "expected a PyTorch module")

        class Branches(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.table = torch.nn.Embedding(VOCABULARY, 4)

            def forward(self, input_ids, labels):
                x = self.table(input_ids).mean()
                return x if x.item() > 0 else -x

        self.says("an unsupported module gives a short message", lambda: self.train(Branches()), "PyTorch cannot export the module", "python_modules.py, line", "such as torch.where")

    def mistakes(self):
        """Messages say what to do; the result of a run evaluates its trained weights."""
        import torch
        from torch.nn import functional as F
        import zorse

        class Logits(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.head = torch.nn.Linear(5, 3)

            def forward(self, x):
                return self.head(x)

        class Classifier(Logits):
            def forward(self, x, label):
                return F.cross_entropy(self.head(x), label)

        x = np.random.default_rng(4).normal(size=(32, 5)).astype(np.float32)
        data = {"x": x, "label": x[:, :3].argmax(1)}

        def train(module, data, **more):
            return zorse.train(module, data, max_steps=2, global_batch_size=8, cluster=self.cluster, **more)

        self.says("a module that returns logits", lambda: train(Logits(), {"x": x}), "expected a module that returns its loss", "the forward of Logits returns a tensor of shape [", ", 3]", "Wrap it")
        self.says("labels that forward does not take", lambda: train(Logits(), data), "Logits has no input 'label'", "wrap the module")
        self.says("an input of another name", lambda: train(Classifier(), {"x": x, "labels": data["label"]}), "has no input 'labels'", "Did you mean 'label'?")
        self.says("an input that is missing", lambda: train(Classifier(), {"x": x}), "also needs an input 'label'", "the data have x")
        self.says("labels that are not whole numbers", lambda: train(Classifier(), {"x": x, "label": x[:, 0]}), "cannot take a training step", "'label' float32 [2]")
        few = {"x": x, "label": np.where(np.arange(32) % 8 < 3, -100, data["label"])}
        self.holds("the first samples may be without labels", all(np.isfinite(train(Classifier(), few).losses)))
        for name, usual in (("learning_rate", "lr"), ("batch_size", "global_batch_size"), ("epochs", "max_steps")):
            try:
                train(Classifier(), data, **{name: 1})
                found = "nothing"
            except TypeError as error:
                found = str(error)
            self.holds(f"{name}: {found[:100]}", f"did you mean '{usual}'?" in found)
        try:
            zorse.train(Classifier(), data, max_steps=1, global_batch_size=8, cluster=["a"])
            found = "nothing"
        except TypeError as error:
            found = str(error)
        self.holds(f"a list of devices: {found[:100]}", "cluster: expected the path of a cluster file" in found)
        module = Classifier()
        run = train(module, data)
        with torch.no_grad():
            expected = float(module(torch.from_numpy(x), torch.from_numpy(data["label"])))
        loss, initial = zorse.evaluate(run, data).loss, zorse.evaluate(run.bundle, data).loss
        self.holds(f"the result of a run is evaluated with its trained weights ({loss:.6f}, {expected:.6f}), its bundle with the initial ones ({initial:.6f})",
                   abs(loss - expected) < 1e-5 and abs(initial - expected) > 1e-4)
        again = zorse.evaluate(run, data, throttle={"a": 0.9}).loss
        self.holds("a throttle as a dictionary", again == loss)
        try:
            zorse.evaluate(module, data)
            found = "nothing"
        except TypeError as error:
            found = str(error)
        self.holds(f"a module cannot be evaluated: {found}", "got Classifier; train the module first" in found)

    def hub(self):
        """A directory of the hub trains; zorse-compile names the command that exports it."""
        try:
            import transformers
        except ImportError:
            return
        folder = os.path.join(self.folder, "hub")
        config = transformers.LlamaConfig(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, max_position_embeddings=64)
        transformers.LlamaForCausalLM(config).save_pretrained(folder)
        self.holds("a directory of the hub trains", len(self.train(folder).losses) == 4)
        code, out, err = z.call("zorse-compile", folder, "--cluster", self.cluster, "--global-batch-size", BATCH, "-o", os.path.join(self.folder, "x.zorse"), ok=False)
        other = os.path.join(self.folder, "bert")
        transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24)).save_pretrained(other)
        tried = subprocess.run([sys.executable, "-m", "zorse.torch_export", "--hf", other, "-o", os.path.join(self.folder, "b.onnx")], capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=os.path.join(z.ROOT, "python")))
        self.holds(f"the command names what it cannot export: {tried.stderr.strip()[:150]}", tried.returncode == 1 and "BertForMaskedLM.from_pretrained" in tried.stderr and len(tried.stderr) < 600)
        self.holds("zorse-compile DIRECTORY names the exporter's command", code == 1 and f"zorse-torch-export --hf {folder}" in err)
        self.says("a model without a head", lambda: self.train(transformers.LlamaModel(config)), "input_ids")


def main():
    ensure_torch()
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder  # files that a run keeps for its caller are removed with the test
        check = Check(folder)
        quick = "--quick" in sys.argv
        for kind in ("Tables", "Collision", "Saved", *(() if quick else ("Penalty",))):
            check.trains(kind)
        check.says("spectral norm, with vectors that change in every step", lambda: check.train(check.made("Spectral")), "'inner.parametrizations.weight.0._u'", "remove_parametrizations(module.inner")
        check.frozen_from_init()
        check.statistics()
        check.wrappers()
        check.mistakes()
        if not quick:
            check.hub()
    z.finish(check.results, "modules of PyTorch train as they come")


main()
