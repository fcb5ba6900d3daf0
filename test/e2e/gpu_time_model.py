"""Compares predicted tokens per second per GPU, without a profile, with published values.

    gpu_time_model.py [--gpt2 ONNX]     --gpt2: also GPT-2 124M as compiled by Zorse

Models are given by their dimensions (--model-shape). The prediction is for the whole step of the chosen plan: matmuls, attention, other
kernels, transfers, updates. Each published value is from one framework at its best settings, with recomputation if
needed; none is Zorse's. So devices have `execution_mode: tuned`, the mode of frameworks with tuned kernels.

Fails if a prediction differs from the published value by more than SPREAD, or if the mean ratio is off by more
than LEAN.
"""
import json
import math
import os
import sys
import tempfile

import harness as z

SPREAD, LEAN = 1.5, 1.2
GPT2 = "family=gpt,layers=12,hidden=768,ffn=3072,heads=12,vocabulary=50304"
GPT2_XL = "family=gpt,layers=48,hidden=1600,ffn=6400,heads=25,vocabulary=50304"
MPT = "family=gpt,layers=32,hidden=4096,ffn=16384,heads=32,vocabulary=50432"
LLAMA3 = "llama3-8b"
# Model, dimensions, positions, samples of a step, GPUs, published tokens per second per GPU, source.
PUBLISHED = [
    ("GPT-2 124M", GPT2, 1024, 512, "A100-80", 8, 218e3, "llm.c"),
    ("GPT-2 124M", GPT2, 1024, 512, "A100-80", 1, 142e3, "PyTorch"),
    ("GPT-2 124M", GPT2, 1024, 256, "RTX4090", 1, 110e3, "PyTorch"),
    ("GPT-2 1.5B", GPT2_XL, 1024, 512, "H100-SXM", 8, 46.8e3, "llm.c"),
    ("MPT 7B", MPT, 2048, 512, "A100-80", 8, 4.64e3, "llm-foundry"),
    ("MPT 7B", MPT, 2048, 512, "H100-SXM", 8, 10.6e3, "llm-foundry"),
    ("Llama 3 8B", LLAMA3, 8192, 64, "A100-80", 8, 2.97e3, "torchtitan"),
    ("Llama 3 8B", LLAMA3, 8192, 64, "H100-SXM", 8, 6.67e3, "torchtitan"),
]


def cluster(folder, kind, count):
    path = os.path.join(folder, f"{kind}-{count}.yaml")
    with open(path, "w") as f:
        f.write(f"name: {kind}\nnodes:\n  - name: n\n    devices: [{{name: g, type: {kind}, count: {count}, execution_mode: tuned}}]\n")
    return path


def predict(folder, model, kind, count, sequence, batch):
    """(tokens per second per GPU, source of the times)"""
    report = os.path.join(folder, "report.json")
    z.call("zorse-plan", *model, "--cluster", cluster(folder, kind, count), "--seq-length", sequence, "--global-batch-size", batch, "--quiet", "--json", report)
    with open(report) as f:
        found = json.load(f)
    return found["tokens_per_second"] / count, found["time_sources"][0]


def main():
    ratios, problems = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name, shape, sequence, batch, kind, count, published, by in PUBLISHED:
            tokens, source = predict(folder, ["--model-shape", shape + ",precision=bf16"], kind, count, sequence, batch)
            ratio = tokens / published
            ratios.append(ratio)
            print(f"{name} x {sequence}, {count} {kind}: predicted {tokens / 1e3:.2f} k tokens/s and GPU, published {published / 1e3:.2f} k ({by}): {ratio:.2f}", flush=True)
            if ": modeled: " not in source:
                problems.append(f"{name} on {kind}: expected times that are modeled, found '{source}'")
            if not 1 / SPREAD <= ratio <= SPREAD:
                problems.append(f"{name} on {count} {kind}: {ratio:.2f} of the published value, expected {1 / SPREAD:.2f} to {SPREAD}")
        if "--gpt2" in sys.argv:
            tokens, source = predict(folder, [sys.argv[sys.argv.index("--gpt2") + 1], "--precision", "bf16"], "A100-80", 1, 1024, 512)
            print(f"GPT-2 124M as Zorse compiles it, 1 A100-80: predicted {tokens / 1e3:.1f} k tokens/s; {source}")
    lean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    if not 1 / LEAN <= lean <= LEAN:
        problems.append(f"all together: {lean:.2f} of the published value, expected {1 / LEAN:.2f} to {LEAN}")
    for line in problems:
        print("FAIL", line)
    if problems:
        sys.exit(1)
    print(f"predicted over published tokens/s of {len(ratios)} runs: {min(ratios):.2f} to {max(ratios):.2f} (limits {1 / SPREAD:.2f} and {SPREAD}), {lean:.2f} together (limits {1 / LEAN:.2f} and {LEAN})")


if __name__ == "__main__":
    main()
