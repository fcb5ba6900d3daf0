"""The benchmark models as PyTorch modules. Needs only PyTorch: make_benchmark.py exports them, test/benchmark/torch_step.py trains them."""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
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
    raise SystemExit(f"no benchmark model is called '{name}': gpt2-124m, llama-100m, gpt-80-blocks or gpt-LAYERSxWIDTH")
