"""PyTorch's training step on this machine, for comparison: tokens/s of the benchmark models, eager or compiled.

    torch_step.py MODEL --batch 4 --sequence 256 --threads 1 [--device cuda] [--compile] [--autocast] [--steps 6]

Prints one line per step and `tokens/s <best> <median>` last. Fused AdamW with clipping, weights tied as in the exported model.
"""
import argparse
import os
import sys
import time

import torch

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, "models"), os.path.join(here, "..", "..", "models")]  # the former in the validation kit
from benchmark_models import build

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--sequence", type=int, default=256)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--device", default="cpu")
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--compile", action="store_true")
parser.add_argument("--autocast", action="store_true", help="torch.autocast to bf16")
a = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(a.threads)
model = build(a.model).train().to(a.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)
step_model = torch.compile(model) if a.compile else model
synchronize = torch.cuda.synchronize if a.device == "cuda" else lambda: None
times = []
for step in range(a.steps):
    ids = torch.randint(0, model.config.vocabulary, (a.batch, a.sequence + 1), device=a.device)
    synchronize()
    begin = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(a.device, torch.bfloat16, enabled=a.autocast):
        loss = step_model(ids[:, :-1], ids[:, 1:].contiguous())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    synchronize()
    times.append(time.perf_counter() - begin)
    print(f"step {step + 1}: loss {loss.item():.4f}, {times[-1]:.3f} s", flush=True)
rates = sorted(a.batch * a.sequence / t for t in times[2:])
print(f"tokens/s {rates[-1]:.1f} {rates[len(rates) // 2]:.1f}")
