"""Imports and exports Hugging Face checkpoints: whole models and adapters (needs PyTorch and transformers:
tools/python-env.sh; PEFT if it is installed).

    hub.py [--quick] [--keep FOLDER]

Tiny random models of transformers are saved in the layout of the hub, exported, trained for two steps by Zorse and by
PyTorch with the same data and optimizer, and written back. transformers loads the result without a script, and its
logits match PyTorch's own training to 1e-5. The same is tested for adapters, which PEFT loads. Also covers names with
and without the prefixes of wrappers and base models, ties, transposes, data types, and all refusals.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

from hub_bench import BASE, BATCH, LENGTH, TARGETS, VOCABULARY, Bench, index_of, load, slices, z  # first: it starts the Python that has PyTorch
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from export import WithLoss, export
from zorse.lora import add_lora
from modules.gpt import GPT, GPTConfig


def whole(b, kind, weightless):
    """A sharded directory is imported, trained for two steps, exported, and compared with PyTorch."""
    hub, other = b.hub(kind, kind), b.hub(kind + "-other", kind, seed=7, shards=False)
    b.expect(f"{kind}: the checkpoint has several files", len({*index_of(hub)["weight_map"].values()}) > 2)
    # The ONNX file has other weights or none, so that all trained parameters come from --load-weights.
    onnx = b.export("--hf", hub if weightless else other, "--sequence", LENGTH, *(["--no-weights"] if weightless else []), "-o", b.at(kind + ".onnx"))
    bundle = b.compile(onnx, kind + ".zorse", *(["--weights=defer"] if weightless else []))
    losses, said = b.train(bundle, hub, kind + ".snapshots")
    b.expect(f"{kind}: nothing had to be guessed", "note:" not in said, said.strip())
    model = load(hub)
    b.figure(f"{kind}: losses of two steps", z.relative(losses, b.reference(model)), 1e-5)
    out = b.at(kind + ".out")
    z.call("zorse-export", b.at(kind + ".snapshots"), "--hub", hub, "-o", out)
    ours, info = load(out, output_loading_info=True)
    b.expect(f"{kind}: transformers loads it, nothing missing or unused", not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info)
    b.figure(f"{kind}: logits after two steps, Zorse and transformers against PyTorch", float((b.logits(ours) - b.logits(model)).abs().max()), 1e-5)
    b.expect(f"{kind}: training has changed the logits", float((b.logits(ours) - b.logits(load(hub))).abs().max()) > 1e-3)
    b.expect(f"{kind}: same files, same index", index_of(out) == index_of(hub))
    same = {n: open(os.path.join(hub, n), "rb").read() == open(os.path.join(out, n), "rb").read() for n in ("config.json", "tokenizer.json", "merges.txt", "LICENSE")}
    b.expect(f"{kind}: configuration, tokenizer and licence are copied, other files are not", all(same.values()) and not os.path.exists(os.path.join(out, "notes.bin")), same)
    # The result can be imported again, as a directory and by its index.
    again = [b.first_loss(bundle, path)[0] for path in (out, os.path.join(out, "model.safetensors.index.json"))]
    b.figure(f"{kind}: the loss of the output, read again", max(abs(l - b.loss(ours)) / l for l in again), 1e-6)
    return bundle, hub, other


def names(b, kind, bundle, hub, other):
    """One file, names of wrappers and of base models, data types."""
    expected = b.loss(load(other))
    file = os.path.join(other, "model.safetensors")
    tensors = load_file(file)

    def same(what, made, *says, limit=1e-6, to=expected, extra=()):
        path = b.at("made.safetensors")
        save_file(made, path)
        loss, said = b.first_loss(bundle, path, *extra)
        b.figure(f"{kind}: loss, {what}", abs(loss - to) / to, limit)
        b.expect(f"{kind}: {what}: said", all(s in said for s in says) and (says or "note:" not in said), said.strip())

    loss, _ = b.first_loss(bundle, file)
    b.figure(f"{kind}: loss, one file", abs(loss - expected) / expected, 1e-6)
    same("names of a wrapper", {"module." + n: t for n, t in tensors.items()}, "'module.'")
    same("names of the exported module", {"model." + n: t for n, t in tensors.items()}, "'model.'")
    prefix = BASE[kind] + "."
    base = {n[len(prefix):] if n.startswith(prefix) else n: t for n, t in tensors.items()}
    same("names of the base model", base, f"do not begin with '{prefix}'")
    buffer = {"llama": "model.layers.0.self_attn.rotary_emb.inv_freq", "gpt2": "transformer.h.0.attn.bias"}[kind]
    same("a buffer of older versions", {**tensors, buffer: torch.ones(4)}, "not used", buffer)
    same("a tensor that is left out", {**tensors, "score.weight": torch.ones(4, 4)}, "score.weight", "--ignore-tensors", extra=("--ignore-tensors", "score.*"))
    for dtype in (torch.bfloat16, torch.float16):
        rounded = {n: t.to(dtype) for n, t in tensors.items()}
        model = load(other)
        model.load_state_dict({n: t.float() for n, t in rounded.items()}, strict=False)
        same(f"{dtype}", rounded, to=b.loss(model))
    if kind == "gpt2":
        same("the tied matrix twice", {**tensors, "lm_head.weight": tensors["transformer.wte.weight"].clone()})

    run = lambda made, *extra: (save_file(made, b.at("made.safetensors")), ["zorse-run", bundle, "--data", b.data, "--max-steps", "1", "--load-weights", b.at("made.safetensors"), *extra])[1]
    some = next(n for n in tensors if n.endswith(("o_proj.weight", "0.attn.c_proj.weight")))
    without = {n: t for n, t in tensors.items() if n != some}
    b.refused(f"{kind}, a tensor is missing", run(without), "1 parameter of the model missing", some, "32x32", "give the checkpoint of the model that was exported")
    b.refused(f"{kind}, an unused tensor", run({**tensors, "q_norm.weight": torch.ones(7, 3)}), "not of the model", "'q_norm.weight' 7x3", "--ignore-tensors=PATTERN")
    b.refused(f"{kind}, another shape", run({**tensors, some: torch.ones(32, 31)}), some, "expects shape 32x32, got 32x31")
    b.refused(f"{kind}, whole numbers", run({**tensors, some: torch.ones(32, 32, dtype=torch.int64)}), some, "expects floating-point numbers, got I64")
    b.refused(f"{kind}, a pattern of nothing", run(tensors, "--ignore-tensors", "nothing.*"), "no tensor is called 'nothing.*'")
    b.refused(f"{kind}, two beginnings fit", run({**{"a." + n: t for n, t in tensors.items()}, **{"b." + n: t.clone() for n, t in tensors.items()}}), "'a.", "'b.", "both choices", "--ignore-tensors=PATTERN")
    if kind == "gpt2":
        b.refused("gpt2, tied and different", run({**tensors, "lm_head.weight": tensors["transformer.wte.weight"] + 1}), "hold different numbers", "ties them", "lm_head.weight")
        same("tied and different, one left out", {**tensors, "lm_head.weight": tensors["transformer.wte.weight"] + 1}, "lm_head.weight", extra=("--ignore-tensors", "lm_head.weight"))


def directories(b, bundle, hub):
    """Incomplete or wrong directories."""
    def copy(name, change):
        shutil.copytree(hub, b.at(name))
        change(b.at(name))
        return ["zorse-run", bundle, "--data", b.data, "--max-steps", "1", "--load-weights", b.at(name)]

    def index(path, change):
        content = index_of(path)
        change(content["weight_map"])
        with open(os.path.join(path, "model.safetensors.index.json"), "w") as f:
            json.dump(content, f)

    def only(path, name):
        for n in os.listdir(path):
            if "safetensors" in n:
                os.remove(os.path.join(path, n))
        open(os.path.join(path, name), "w").close()

    weights = index_of(hub)["weight_map"]
    tensor, shard = sorted(weights.items())[0]
    another = next(f for f in sorted(set(weights.values())) if f != shard)
    b.refused("a shard is missing", copy("d1", lambda p: os.remove(os.path.join(p, shard))), shard, "fetch the whole directory again")
    b.refused("the index is of another checkpoint", copy("d2", lambda p: index(p, lambda m: m.update({tensor: another}))), tensor, "does not hold it", "fetch the whole directory again")
    b.refused("a tensor missing in the index", copy("d3", lambda p: index(p, lambda m: m.pop(tensor))), f"does not list tensor '{tensor}'")
    b.refused("the index leads elsewhere", copy("d4", lambda p: index(p, lambda m: m.update({tensor: "../" + shard}))), "expects the name of a file in the directory of the index")
    b.refused("no index", copy("d5", lambda p: open(os.path.join(p, "model.safetensors.index.json"), "w").write("[]")), "is no index of safetensors files", "weight_map")
    b.refused("both forms", copy("d6", lambda p: shutil.copy(os.path.join(p, shard), os.path.join(p, "model.safetensors"))), "holds both", "name the one")
    b.refused("weights of pickle", copy("d7", lambda p: only(p, "pytorch_model.bin")), "pytorch_model.bin", "save_pretrained")
    b.refused("an adapter", copy("d8", lambda p: only(p, "adapter_model.safetensors")), "adapter", "base model")
    b.refused("no weights", copy("d9", lambda p: only(p, "nothing")), "holds neither", "safetensors file")
    b.refused("a tensor is in two files", copy("d10", lambda p: save_file({**load_file(os.path.join(p, another)), **load_file(os.path.join(p, shard))}, os.path.join(p, another))), "is in", "expected once")


def outputs(b, kind, hub, other):
    """Data types, one file, no initial weights; and refusals."""
    snapshots, out = b.at(kind + ".snapshots"), b.at(kind + ".out")
    z.call("zorse-export", snapshots, "--hub", hub, "--dtype", "bf16", "-o", b.at(kind + ".bf16"))
    model = AutoModelForCausalLM.from_pretrained(b.at(kind + ".bf16"))
    ours = load(out).to(torch.bfloat16)
    equal = all(torch.equal(a, c) for a, c in zip(model.state_dict().values(), ours.state_dict().values()))
    b.expect(f"{kind}: --dtype bf16 rounds like PyTorch, and config.json has the type", equal and model.dtype == torch.bfloat16)
    z.call("zorse-export", snapshots, "--hub", other, "-o", b.at(kind + ".one"))
    b.expect(f"{kind}: one file in, one file out", not os.path.exists(b.at(kind + ".one", "model.safetensors.index.json")) and
             torch.equal(b.logits(load(b.at(kind + ".one"))), b.logits(load(out))))
    os.mkdir(b.at(kind + ".config"))
    shutil.copy(os.path.join(hub, "config.json"), b.at(kind + ".config"))
    z.call("zorse-export", snapshots, "--hub", b.at(kind + ".config"), "-o", b.at(kind + ".new"))
    b.expect(f"{kind}: a configuration alone, names of the facts", torch.equal(b.logits(load(b.at(kind + ".new"))), b.logits(load(out))))
    words = ["zorse-export", snapshots, "--hub", hub, "-o"]
    b.refused("the output is there", [*words, out], "is not empty", "Choose another name")
    b.refused("the output is the source", [*words, os.path.join(hub, "out")], "--hub")
    b.refused("another model", ["zorse-export", snapshots, "--hub", b.at({"llama": "gpt2", "gpt2": "llama"}[kind]), "-o", b.at("none")], "missing")
    b.expect("nothing was left behind", not os.path.exists(b.at("none")) and not [n for n in os.listdir(b.folder) if n.startswith(".")])


def adapters(b, kind, peft):
    """The same for adapters."""
    hub, targets = b.at(kind), TARGETS[kind]
    onnx = b.export("--hf", hub, "--sequence", LENGTH, "--lora", f"r=4,alpha=8,targets={','.join(targets)}", *(["--no-weights"] if kind == "llama" else []), "-o", b.at(kind + "-lora.onnx"))
    bundle = b.compile(onnx, kind + "-lora.zorse", *(["--weights=defer"] if kind == "llama" else []))
    losses, said = b.train(bundle, hub, kind + "-lora.snapshots", "--dump-gradients", b.at("gradients.safetensors"))
    b.expect(f"{kind} adapters: nothing had to be guessed", "note:" not in said, said.strip())
    import onnx as onnx_files

    initial = {t.name.removeprefix("model."): torch.from_numpy(onnx_files.numpy_helper.to_array(t).copy()) for t in onnx_files.load(onnx, load_external_data=False).graph.initializer
               if "lora_" in t.name}
    model = load(hub)
    add_lora(model, 4, 8, targets)
    model.load_state_dict(initial, strict=False)
    expected = b.reference(model)
    b.figure(f"{kind} adapters: losses of two steps", z.relative(losses, expected), 1e-5)
    kept, moments, index = slices(b.at(kind + "-lora.snapshots"))
    names = {"model." + n for n, p in model.named_parameters() if p.requires_grad}
    b.expect(f"{kind} adapters: the snapshot has parameters and optimizer states of only the {len(names)} adapter matrices", kept == moments == names and len(names) >= 4)
    b.expect(f"{kind} adapters: gradients are those of the adapters alone", set(z.safetensors(b.at("gradients.safetensors"))) == names)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    _, said, _ = z.call("zorse-inspect", bundle)
    b.expect(f"{kind} adapters: the bundle trains {trained} numbers and no others", f" {trained:,} trained parameters and ".replace(",", "") in said or f" {trained / 1000:.1f} k trained parameters and " in said,
             next((line.strip() for line in said.splitlines() if "trained" in line), said))
    out = b.at(kind + ".adapter")
    z.call("zorse-export", b.at(kind + "-lora.snapshots"), "--hub", hub, "-o", out)
    with open(os.path.join(out, "adapter_config.json")) as f:
        config = json.load(f)
    wanted = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 4, "lora_alpha": 8, "target_modules": targets, "bias": "none", "fan_in_fan_out": kind == "gpt2", "base_model_name_or_path": hub}
    b.expect(f"{kind} adapters: adapter_config.json", wanted.items() <= config.items(), config)
    found = load_file(os.path.join(out, "adapter_model.safetensors"))
    b.expect(f"{kind} adapters: names of PEFT", set(found) == {"base_model.model." + n.removeprefix("model.") for n in names}, sorted(found)[:3])
    again = load(hub)
    add_lora(again, 4, 8, targets)
    again.load_state_dict({n.removeprefix("base_model.model."): t for n, t in found.items()}, strict=False)
    b.figure(f"{kind} adapters: logits after two steps against PyTorch", float((b.logits(again) - b.logits(model)).abs().max()), 1e-5)
    if peft:
        loaded = peft.PeftModel.from_pretrained(load(hub), out)
        b.figure(f"{kind} adapters: logits as PEFT computes them", float((b.logits(loaded) - b.logits(model)).abs().max()), 1e-5)
        b.expect(f"{kind} adapters: they have changed the logits", float((b.logits(loaded) - b.logits(load(hub))).abs().max()) > 1e-4)
    other = b.at(kind + "-other")
    b.refused(f"{kind} adapters: another base model", ["zorse-export", b.at(kind + "-lora.snapshots"), "--hub", other, "-o", b.at("none")], "the run started from other weights", "--load-weights")
    b.refused(f"{kind} adapters: a tensor of the base model is missing", ["zorse-run", bundle, "--data", b.data, "--max-steps", "1", "--load-weights", missing(b, other)], "missing", "norm" if kind == "llama" else "ln_f")


def missing(b, hub):
    path = b.at("missing.safetensors")
    tensors = load_file(os.path.join(hub, "model.safetensors"))
    save_file({n: t for n, t in tensors.items() if n not in ("model.norm.weight", "transformer.ln_f.weight")}, path)
    return path


def transposes(b):
    """A module of linear layers against a checkpoint of Conv1D, which stores transposed matrices: by names from the
    file's facts, and by shape, which is ambiguous for square matrices."""
    torch.manual_seed(0)
    module = GPT(GPTConfig(layers=1, heads=2, width=16, context=LENGTH, vocabulary=VOCABULARY))
    with torch.no_grad():
        for p in module.parameters():
            p.add_(torch.randn_like(p) * 0.05)
    turned = ("c_attn.weight", "c_fc.weight", "c_proj.weight")
    hub = {"transformer." + n: (p.detach().t() if n.endswith(turned) else p.detach()).contiguous() for n, p in module.named_parameters()}
    save_file(hub, b.at("conv.safetensors"), metadata={"format": "pt"})
    ids = torch.from_numpy(b.ids[:BATCH])
    with torch.no_grad():
        expected = float(module(ids, ids))
    fresh = GPT(GPTConfig(layers=1, heads=2, width=16, context=LENGTH, vocabulary=VOCABULARY))
    with torch.no_grad():
        for p in fresh.parameters():
            p.add_(torch.randn_like(p) * 0.05)
    facts = {n: ("transformer." + n, n.endswith(turned)) for n, _ in fresh.named_parameters()}
    export(fresh, b.at("linear.onnx"), sequence=LENGTH, vocabulary=VOCABULARY, hub=facts)
    bundle = b.compile(b.at("linear.onnx"), "linear.zorse")
    loss, said = b.first_loss(bundle, b.at("conv.safetensors"))
    b.figure("transposes, by facts: loss", abs(loss - expected) / expected, 1e-6)
    z.call("zorse-run", bundle, "--data", b.data, "--max-steps", 1, "--lr", 0, "--load-weights", b.at("conv.safetensors"), "--checkpoint-dir", b.at("linear.snapshots"), "--quiet")
    z.call("zorse-export", b.at("linear.snapshots"), "--hub", b.at("conv.safetensors"), "-o", b.at("linear.out"))
    back = load_file(b.at("linear.out", "conv.safetensors"))
    b.expect("transposes, by facts: undone on the way out", set(back) == set(hub) and all(torch.equal(back[n], hub[n]) for n in hub))
    export(fresh, b.at("guess.onnx"), sequence=LENGTH, vocabulary=VOCABULARY)
    guess = b.compile(b.at("guess.onnx"), "guess.zorse")
    b.refused("transposes without facts: a square matrix is ambiguous", ["zorse-run", guess, "--data", b.data, "--max-steps", "1", "--load-weights", b.at("conv.safetensors")], "square matrices", "h.0.attn.c_proj.weight' 16x16", "write_metadata")
    plain = {"transformer." + n: p.detach().contiguous() for n, p in module.named_parameters()}
    save_file(plain, b.at("plain.safetensors"))
    loss, said = b.first_loss(guess, b.at("plain.safetensors"))
    b.figure("without facts, by name and shape: loss", abs(loss - expected) / expected, 1e-6)
    b.expect("without facts, by name and shape: reported", "found by name and shape" in said and "'transformer.'" in said, said.strip())


def optimized(b):
    """An export in which the optimizer has folded transposes into matrices."""
    hub = b.at("llama-other")
    model = load(hub)
    export(WithLoss(model), b.at("optimized.onnx"), sequence=LENGTH, vocabulary=VOCABULARY, optimize=True, dynamic=False, rows=BATCH)
    bundle = b.compile(b.at("optimized.onnx"), "optimized.zorse")
    with open(os.path.join(bundle, "weights.json")) as f:
        turned = [p["name"] for p in json.load(f)["parameters"] if p.get("hub", {}).get("transposed")]
    other = b.at("llama")
    loss, said = b.first_loss(bundle, other)
    b.figure(f"an optimized export with {len(turned)} folded transposes: loss", abs(loss - b.loss(load(other))) / loss, 1e-6)
    b.expect("an optimized export: matrices are folded", len(turned) >= 4 and "note:" not in said, said.strip())
    b.train(bundle, other, "optimized.snapshots")
    z.call("zorse-export", b.at("optimized.snapshots"), "--hub", other, "-o", b.at("optimized.out"))
    b.figure("an optimized export: logits after two steps", float((b.logits(load(b.at("optimized.out"))) - b.logits(load(b.at("llama.out")))).abs().max()), 1e-5)


def exports(b):
    """Inputs that models/export.py refuses."""
    def refused(what, words, *says):
        done = subprocess.run([sys.executable, os.path.join(z.ROOT, "models", "export.py"), *words, "-o", b.at("none.onnx")], capture_output=True, text=True)
        said = done.stderr.strip().splitlines()
        b.expect(f"refused: export, {what}", done.returncode == 1 and said and all(s in said[-1] for s in says), (said or [""])[-1][:400])

    refused("no such directory", ["--hf", b.at("none")], "expects a configuration class", "local cache")
    refused("no such target", ["--hf", b.at("llama"), "--lora", "r=2,targets=query"], "target 'query'", "q_proj")
    refused("no linear layer", ["--hf", b.at("llama"), "--lora", "r=2,targets=norm"], "not a linear layer")
    refused("no rank", ["--hf", b.at("llama"), "--lora", "targets=q_proj"], "expects r, targets")
    shutil.copytree(b.at("llama-other"), b.at("incomplete"))
    save_file({n: t for n, t in load_file(b.at("incomplete", "model.safetensors")).items() if n != "model.norm.weight"}, b.at("incomplete", "model.safetensors"), metadata={"format": "pt"})
    refused("a parameter is missing", ["--hf", b.at("incomplete")], "1 parameters of the model are missing", "model.norm.weight")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="one model, no other exports")
    parser.add_argument("--keep", metavar="FOLDER")
    a = parser.parse_args()
    try:
        import peft
    except ImportError:
        peft = None
        print("skipped: adapters in PEFT itself: it is not installed (pip install peft, in the environment of tools/python-env.sh or the one that ZORSE_PYTHON names)")
    with tempfile.TemporaryDirectory() as temporary:
        if a.keep:
            os.makedirs(a.keep, exist_ok=True)
        b = Bench(a.keep or temporary)
        for kind in ("llama", "gpt2"):
            made = whole(b, kind, weightless=kind == "llama")
            if not a.quick or kind == "gpt2":
                names(b, kind, *made)
        directories(b, made[0], made[1])
        outputs(b, "gpt2", made[1], made[2])
        adapters(b, "llama", peft)
        if not a.quick:
            outputs(b, "llama", b.at("llama"), b.at("llama-other"))
            adapters(b, "gpt2", peft)
            transposes(b)
            optimized(b)
            exports(b)
    z.finish(b.results)


if __name__ == "__main__":
    main()
