"""Make the small models in models/small with their initial weights and PyTorch's references. Run again only to change them:

    python models/make_small.py

For each model: NAME.onnx (initial weights inside), NAME.tokens.bin (uint16 token ids), NAME.reference.json (loss and gradient norm of
50 AdamW steps, settings included) and NAME.gradients.safetensors (gradients of the first step, by parameter name, before clipping).
"""
import json
import math
import os
import sys

import numpy as np
import torch
from safetensors.torch import save_file

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
from export import export, strip
from modules.gpt import GPT, GPTConfig, initialise
from modules.llama import Llama, LlamaConfig

ROWS, STEPS, LENGTH = 8, 50, 32
SETTINGS = dict(lr=3e-4, warmup=10, clip=1.0, betas=[0.9, 0.95], eps=1e-8, weight_decay=0.1, rows=ROWS, sequence=LENGTH, schedule="constant")


def tokens(vocabulary, seed):
    """Text-like ids: a random walk over a skewed alphabet, which a model can learn."""
    rng = np.random.default_rng(seed)
    table = rng.permutation(vocabulary)
    walk = np.cumsum(rng.choice([1, 1, 1, 2, 3, 7], size=STEPS * ROWS * LENGTH + 1)) % 61
    return table[walk % vocabulary].astype(np.uint16)


def reference(model, ids, shifted_in_graph):
    model.train()
    decay = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": SETTINGS["weight_decay"]}, {"params": plain, "weight_decay": 0.0}],
                                  lr=SETTINGS["lr"], betas=tuple(SETTINGS["betas"]), eps=SETTINGS["eps"])
    losses, norms, gradients = [], [], {}
    for step in range(STEPS):
        base = step * ROWS * LENGTH
        x = torch.from_numpy(ids[base:base + ROWS * LENGTH].astype(np.int64)).view(ROWS, LENGTH)
        y = x.clone() if shifted_in_graph else torch.from_numpy(ids[base + 1:base + ROWS * LENGTH + 1].astype(np.int64)).view(ROWS, LENGTH)
        for group in optimizer.param_groups:
            group["lr"] = SETTINGS["lr"] * min(1.0, (step + 1) / SETTINGS["warmup"])
        optimizer.zero_grad(set_to_none=True)
        loss = model(x, y)
        loss.backward()
        if step == 0:
            gradients = {n: p.grad.detach().clone() for n, p in model.named_parameters(remove_duplicate=False)}
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), SETTINGS["clip"])))
        losses.append(float(loss.detach()))
        optimizer.step()
    return losses, norms, gradients


def make(name, model, shifted_in_graph, seed):
    folder = os.path.join(here, "small")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    export(model, path + ".onnx", sequence=LENGTH, vocabulary=model.config.vocabulary, external_data=False)
    ids = tokens(model.config.vocabulary, seed)
    ids.tofile(path + ".tokens.bin")
    losses, norms, gradients = reference(model, ids, shifted_in_graph)
    save_file({n: g.clone() for n, g in gradients.items()}, path + ".gradients.safetensors")
    with open(path + ".reference.json", "w") as f:
        json.dump({"settings": SETTINGS, "torch": torch.__version__.split("+")[0], "loss": losses, "gradient_norm": norms}, f, indent=1)
    print(f"{name}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, {os.path.getsize(path + '.onnx') / 1e6:.2f} MB")


def make_fixed(name, model, rows):
    """The same model exported with a fixed batch size; its weights are in NAME.onnx.data, which the
    first export writes."""
    import onnx

    path = os.path.join(here, "small", f"{name}-fixed-{rows}.onnx")
    export(model, path, rows=rows, sequence=LENGTH, vocabulary=model.config.vocabulary, dynamic=False, external_data=False)
    graph = onnx.load(path)
    data, offset = os.path.join(here, "small", name + ".onnx.data"), 0
    with open(data, "wb") as f:
        for tensor in sorted(graph.graph.initializer, key=lambda t: t.name):
            raw = tensor.raw_data
            if len(raw) < 1024:
                continue
            f.write(raw)
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", name + ".onnx.data"), ("offset", str(offset)), ("length", str(len(raw)))):
                entry = tensor.external_data.add()
                entry.key, entry.value = key, value
            offset += len(raw)
    onnx.save(graph, path)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for name, build, shifted_in_graph, seed in (("gpt", lambda: initialise(GPT(GPTConfig()), seed=1, distinct=True), False, 11),
                                                ("llama", lambda: initialise(Llama(LlamaConfig()), seed=2, distinct=True), True, 12)):
        make(name, build(), shifted_in_graph, seed)
        for rows in (1, 2, 4):  # 4 = heads
            make_fixed(name, build(), rows)
    quick = initialise(GPT(GPTConfig(layers=4, heads=4, width=92, context=128)), seed=3)
    export(quick, os.path.join(here, "small", "gpt-bytes.onnx"), sequence=64, external_data=False)
    # Deep: its state is several times larger than a few of its blocks need. Its weights would be 29
    # MB and are not committed: tests generate them.
    deep = initialise(GPT(GPTConfig(layers=16, width=192, context=64, heads=6)), seed=5)
    export(deep, os.path.join(here, "small", "gpt-deep.onnx"), sequence=64, external_data=True)
    os.remove(os.path.join(here, "small", "gpt-deep.onnx.data"))
    # A vocabulary larger than 256: text can be neither its data nor its prompts.
    words = initialise(GPT(GPTConfig(vocabulary=1000, layers=1, heads=2, width=8, context=16)), seed=6, distinct=True)
    export(words, os.path.join(here, "small", "gpt-words.onnx"), sequence=16, vocabulary=1000, external_data=False)
    # Small enough for hundreds of plans in f64, with dropout: the model of the property test.
    tiny = initialise(GPT(GPTConfig(vocabulary=32, layers=2, heads=2, width=16, context=16, dropout=0.1)), seed=4, distinct=True)
    export_with_dropout(tiny, os.path.join(here, "small", "gpt-tiny-dropout.onnx"))


def export_with_dropout(model, path):
    ids = torch.randint(0, model.config.vocabulary, (2, 8))
    model.train()
    torch.onnx.export(model, (ids, ids.clone()), path, input_names=["input_ids", "labels"], output_names=["loss"], opset_version=17, dynamo=False,
                      dynamic_axes={"input_ids": {0: "batch", 1: "sequence"}, "labels": {0: "batch", 1: "sequence"}},
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)
    strip(path)


if __name__ == "__main__":
    main()
