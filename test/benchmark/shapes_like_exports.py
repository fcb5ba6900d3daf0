"""Compares plans for --model-shape with plans for exported models of the same dimensions.

    shapes_like_exports.py [--quick]      --quick: two families

transformers makes each model from a configuration; its config.json is one input of zorse-plan, PyTorch's export of the
model the other. The steps of one plan may differ by STEP, the memory of every device by MEMORY. The plan is the one
that is found for the exported model.
"""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import harness as z

sys.path.insert(0, os.path.join(z.ROOT, "python"))
STEP, MEMORY = 0.01, 0.03
SEQUENCE, BATCH = 256, 32
COMMON = dict(hidden_size=512, intermediate_size=1536, num_hidden_layers=4, num_attention_heads=8, vocab_size=8192)
FAMILIES = {
    "gpt2": ("GPT2", "GPT2LMHeadModel", dict(n_embd=512, n_layer=4, n_head=8, vocab_size=8192, n_positions=SEQUENCE, bos_token_id=0, eos_token_id=0, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)),
    "llama": ("Llama", "LlamaForCausalLM", dict(COMMON, num_key_value_heads=4)),
    "qwen3": ("Qwen3", "Qwen3ForCausalLM", dict(COMMON, num_key_value_heads=4, head_dim=64)),
    "opt": ("OPT", "OPTForCausalLM", dict(hidden_size=512, ffn_dim=2048, num_hidden_layers=4, num_attention_heads=8, vocab_size=8192, word_embed_proj_dim=512, dropout=0, max_position_embeddings=SEQUENCE)),
    "gpt_neox": ("GPTNeoX", "GPTNeoXForCausalLM", dict(COMMON, rotary_pct=1.0)),
    "mixtral": ("Mixtral", "MixtralForCausalLM", dict(COMMON, num_key_value_heads=4, num_local_experts=4, num_experts_per_tok=2)),
    "bert": ("Bert", "BertForMaskedLM", dict(COMMON, hidden_dropout_prob=0, attention_probs_dropout_prob=0, max_position_embeddings=SEQUENCE)),
    "vit": ("ViT", "ViTForImageClassification", dict(hidden_size=512, intermediate_size=2048, num_hidden_layers=4, num_attention_heads=8, hidden_dropout_prob=0, attention_probs_dropout_prob=0, num_labels=100)),
    "t5": ("T5", "T5ForConditionalGeneration", dict(d_model=512, d_kv=64, d_ff=2048, num_layers=4, num_heads=8, vocab_size=8192, dropout_rate=0)),
}
QUICK = ("gpt2", "llama")


def inputs_of(name):
    """Example inputs of models that do not read input_ids and labels alone."""
    import torch
    ids = torch.arange(2 * SEQUENCE).reshape(2, SEQUENCE) % 100
    if name == "vit":
        return {"pixel_values": torch.linspace(-1, 1, 2 * 3 * 224 * 224).reshape(2, 3, 224, 224), "labels": torch.tensor([1, 2])}
    if name == "t5":
        return {"input_ids": ids, "decoder_input_ids": ids.clone(), "labels": ids.clone()}
    return None


def report(name, folder, words, *more):
    path = os.path.join(folder, "report.json")
    length = () if name == "vit" else ("--seq-length", SEQUENCE)
    z.call("zorse-plan", *words, *length, "--global-batch-size", BATCH, "--cluster", os.path.join(folder, "cluster.yaml"), "--quiet", "--json", path, *more)
    with open(path) as f:
        return json.load(f)


def compare(name, folder):
    import torch
    import transformers
    import zorse
    torch.manual_seed(0)
    config_class, model_class, settings = FAMILIES[name]
    config = getattr(transformers, config_class + "Config")(**settings)
    config.save_pretrained(folder)
    file = os.path.join(folder, f"{name}.onnx")
    zorse.export(getattr(transformers, model_class)(config), file, sequence=SEQUENCE, inputs=inputs_of(name))
    plan = os.path.join(folder, "plan.json")
    exported = report(name, folder, [file, "--precision", "bf16"], "-o", plan)
    with open(plan) as f:
        units = {key: value for key, value in json.load(f).items() if key != "model"}  # the graphs differ, the units are the same
    with open(plan, "w") as f:
        json.dump(units, f)
    shape = report(name, folder, ["--model-shape", os.path.join(folder, "config.json") + ",precision=bf16"], "--plan", plan)
    memory = max(abs(b["memory"]["total"] / a["memory"]["total"] - 1) for a, b in zip(exported["devices"], shape["devices"]))
    return exported["step_seconds"], shape["step_seconds"], memory


def main():
    names = QUICK if "--quick" in sys.argv else FAMILIES
    worst, most = 0.0, 0.0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "cluster.yaml"), "w") as f:
                f.write("nodes:\n  - {name: n, devices: [{name: a, type: RTX4090, count: 2}, {name: b, type: RTX3090, count: 2}]}\n")
            exported, shape, memory = compare(name, folder)
        worst, most = max(worst, abs(shape / exported - 1)), max(most, memory)
        print(f"{name}: exported {exported:.5f} s a step, as a shape {shape:.5f} s; memory of a device differs by at most {100 * memory:.2f} %", flush=True)
    print(f"{len(names)} families of transformers, as shapes and as exported models: steps differ by at most {100 * worst:.2f} % (limit {100 * STEP:g} %), memory by {100 * most:.2f} % (limit {100 * MEMORY:g} %)")
    sys.exit(worst > STEP or most > MEMORY)


if __name__ == "__main__":
    main()
