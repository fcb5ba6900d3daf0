"""Make the benchmark models (too large to commit):

    python models/make_benchmark.py gpt2-124m OUT.onnx      # GPT-2 124M: 12 layers, width 768, 50,257 tokens padded to 50,304
    python models/make_benchmark.py llama-100m OUT.onnx     # 12 layers, width 768, GQA 12:4, 32,000 tokens
    python models/make_benchmark.py gpt-80-blocks OUT.onnx  # deep and narrow: 80 layers, width 64, for compile times with many devices
    python models/make_benchmark.py gpt-6x384 OUT.onnx      # byte-level, any LAYERSxWIDTH, 128 positions: for clusters emulated on one machine
"""
import os
import sys

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from benchmark_models import build
from export import export


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    torch.manual_seed(0)
    model = build(sys.argv[1])
    export(model, sys.argv[2], sequence=min(256, getattr(model.config, "context", 256)), vocabulary=model.config.vocabulary, external_data=True)
    print(f"{sys.argv[2]}: {sum(p.numel() for p in model.parameters()):,} parameters")
