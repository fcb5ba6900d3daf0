"""Make the benchmark models (too large to commit):

    python models/make_benchmark.py gpt2-124m OUT.onnx      # GPT-2 124M: 12 layers, width 768, 50,257 tokens padded to 50,304
    python models/make_benchmark.py llama-100m OUT.onnx     # 12 layers, width 768, GQA 12:4, 32,000 tokens
    python models/make_benchmark.py gpt-80-blocks OUT.onnx  # deep and narrow: 80 layers, width 64, for compile times on many devices
    python models/make_benchmark.py gpt-6x384 OUT.onnx      # bytes, any LAYERSxWIDTH, 128 positions: for clusters made of one machine
"""
import os
import re
import sys

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from export import export
from modules.gpt import GPT, GPTConfig, initialise
from modules.llama import Llama, LlamaConfig


def build(name):
    if name == "gpt2-124m":
        return initialise(GPT(GPTConfig(vocabulary=50304, context=1024, layers=12, heads=12, width=768)))
    if name == "llama-100m":
        return initialise(Llama(LlamaConfig(vocabulary=32000, layers=12, heads=12, key_heads=4, width=768, hidden=2048)))
    if name == "gpt-80-blocks":
        return initialise(GPT(GPTConfig(vocabulary=512, context=64, layers=80, heads=4, width=64)))
    if sizes := re.fullmatch(r"gpt-(\d+)x(\d+)", name):
        return initialise(GPT(GPTConfig(vocabulary=256, context=128, layers=int(sizes[1]), heads=4, width=int(sizes[2]))))
    raise SystemExit(__doc__)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    torch.manual_seed(0)
    model = build(sys.argv[1])
    export(model, sys.argv[2], sequence=min(256, getattr(model.config, "context", 256)), vocabulary=model.config.vocabulary, external_data=True)
    print(f"{sys.argv[2]}: {sum(p.numel() for p in model.parameters()):,} parameters")
