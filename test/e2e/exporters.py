"""The same model exported five ways gives the same canonical graph and the same losses (needs PyTorch:
tools/python-env.sh).

    exporters.py [--steps 50] [--hf] [--keep FOLDER]

Zorse's GPT and LLaMA modules with weights drawn so that no two parameters are equal: TorchScript, dynamo default,
unoptimized, dynamic axes, opset 23. With --hf also the Hugging Face GPT-2 and LLaMA classes (the dynamo variants). With
initial weights the default export must be refused, and the error names the merged parameters.
"""
import argparse
import difflib
import os
import re
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
import logging

logging.disable(logging.WARNING)
import torch

import harness as z

sys.path.insert(0, os.path.join(z.ROOT, "models"))
from export import WithLoss, export, export_without_weights, parameters_on_meta
from modules.gpt import GPT, GPTConfig, initialise
from modules.llama import Llama, LlamaConfig

BATCH, LENGTH = 8, 32
VARIANTS = {"unoptimized": dict(dynamic=False), "dynamic": dict(), "default": dict(optimize=True, dynamic=False), "opset23": dict(opset=23, dynamic=False),
            "torchscript": dict(dynamo=False)}


def own(name, distinct=True):
    torch.manual_seed(0)
    model = GPT(GPTConfig()) if name == "gpt" else Llama(LlamaConfig())
    return initialise(model, seed=5, distinct=distinct), model.config.vocabulary


def hugging_face(name):
    import transformers

    torch.manual_seed(0)
    if name == "hf-gpt2":
        config = transformers.GPT2Config(n_layer=3, n_head=4, n_embd=64, vocab_size=256, n_positions=64, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    else:
        config = transformers.LlamaConfig(num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, hidden_size=64, intermediate_size=176, vocab_size=256)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.empty_like(p).normal_(0.0, 0.01, generator=generator))
    return WithLoss(model), 256


def canonical(text):
    """The printed graph up to names: SSA values are numbered by appearance, arguments by first use. Constant folding of
    exporters is undone: a matmul with a transposed weight is printed with its type in one order, and a slice or
    reshape of a parameter counts as the parameter."""
    body, names, alias, arguments = [], {}, {}, set()

    def number(name):
        name = alias.get(name, name)
        return names.setdefault(name, f"%{len(names)}")

    for line in text.splitlines():
        line = line.strip()
        if line.startswith("func.func @model"):
            arguments = {a for a, kind in re.findall(r"(%[\w.$-]+): \S+ \{([^}]*)\}", line) if "zorse.parameter" in kind}
        elif line.startswith("%") or line.startswith("return"):
            view = re.match(r"(%[\w.$-]+) = zorse\.(?:slice|reshape) (%[\w.$-]+)", line)
            if view and alias.get(view.group(2), view.group(2)) in arguments:
                alias[view.group(1)] = alias.get(view.group(2), view.group(2))
                continue
            weight = re.match(r"%\S+ = zorse\.matmul %[\w.$-]+, (%[\w.$-]+)", line)
            if weight and weight.group(1) in arguments:
                line = line.replace(" {transpose_b}", "")
                line = re.sub(r", tensor<(\d+)x(\d+)x", lambda m: ", weight<" + "x".join(sorted(m.groups(), key=int)) + "x", line)
            body.append(re.sub(r"%[\w.$-]+", lambda m: number(m.group(0)), line))
    return body


class Logits(torch.nn.Module):
    """A model without a loss, with its embedding table tied to its head."""

    def __init__(self):
        super().__init__()
        self.table, self.head = torch.nn.Embedding(16, 4), torch.nn.Linear(4, 16, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids, labels=None):
        logits = self.head(torch.tanh(self.table(ids)))
        return logits if labels is None else torch.nn.functional.cross_entropy(logits.reshape(-1, 16), labels.reshape(-1).to(logits.device))


def helper(folder):
    """The guarantees of the export helper alone."""
    import onnx

    path = os.path.join(folder, "logits.onnx")
    export(Logits(), path, inputs={"ids": torch.zeros(2, 6, dtype=torch.long)}, outputs=("logits",))
    good = [o.name for o in onnx.load(path).graph.output] == ["logits"]
    print(f"{'ok  ' if good else 'FAIL'} a model that returns logits alone is exported and checked")
    with parameters_on_meta():
        model = Logits()
    tied = model.head.weight is model.table.weight and model.head.weight.device.type == "meta"
    export_without_weights(model, path, sequence=6, vocabulary=16)
    held = sum(t.dims[0] == 16 for t in onnx.load(path, load_external_data=False).graph.initializer)
    tied &= held == 1
    print(f"{'ok  ' if tied else 'FAIL'} without weights, tied parameters stay one: {held} table of 16 rows")
    return [good, tied]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--hf", action="store_true")
    parser.add_argument("--keep")
    a = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = a.keep or temporary
        os.makedirs(folder, exist_ok=True)
        results += helper(folder)
        one = z.cluster(folder, ["a"])
        data = os.path.join(z.SMALL, "gpt.tokens.bin")
        for name in ["gpt", "llama"] + (["hf-gpt2", "hf-llama"] if a.hf else []):
            build = hugging_face if name.startswith("hf") else own
            graphs, losses = {}, {}
            for variant, options in VARIANTS.items():
                if name.startswith("hf") and variant == "torchscript":
                    continue
                model, vocabulary = build(name)
                path = os.path.join(folder, f"{name}-{variant}.onnx")
                export(model, path, sequence=LENGTH, vocabulary=vocabulary, external_data=False, **options)
                bundle = os.path.join(folder, f"{name}-{variant}.zorse")
                try:
                    _, out, err = z.call("zorse-compile", path, "--cluster", one, "--global-batch-size", BATCH, "--seq-length", LENGTH, "--compile-to=recognize", "--emit=graph", "--quiet")
                    graphs[variant] = canonical(out)
                    z.compile(path, bundle, one, BATCH, LENGTH)
                    losses[variant] = [m["loss"] for m in z.run(bundle, data, a.steps)]
                except z.Failure as failure:
                    print(f"FAIL {name} {variant}: {failure}")
                    results.append(False)
            first = next(iter(graphs), None)
            for variant in graphs:
                same = graphs[variant] == graphs[first]
                results.append(same)
                print(f"{'ok  ' if same else 'FAIL'} {name} {variant}: {len(graphs[variant])} lines, {'equal to' if same else 'differs from'} {first}", flush=True)
                if not same:
                    print("\n".join(list(difflib.unified_diff(graphs[first], graphs[variant], first, variant, lineterm="", n=0))[:40]))
                if variant in losses and first in losses:
                    results.append(z.check(f"{name} {variant}: losses of {a.steps} steps", z.relative(losses[variant], losses[first]), 1e-5))
        model, vocabulary = own("gpt", distinct=False)
        path = os.path.join(folder, "gpt-fresh.onnx")
        export(model, path, sequence=LENGTH, vocabulary=vocabulary, external_data=False, optimize=True, dynamic=False)
        code, out, err = z.compile(path, os.path.join(folder, "fresh.zorse"), one, BATCH, LENGTH, ok=False)
        text = out + err
        good = code == 1 and "error" in text and "merged" in text and "optimize=False" in text
        results.append(good)
        print(f"{'ok  ' if good else 'FAIL'} fresh weights, default export: an error names the merged parameters and the fix")
    z.finish(results)


if __name__ == "__main__":
    main()
