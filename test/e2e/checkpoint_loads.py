"""The quickstart's checkpoint loads into the PyTorch model by name and gives the same loss as in Zorse (needs PyTorch:
tools/python-env.sh).

    checkpoint_loads.py OUT_FOLDER      the quickstart's output folder
"""
import json
import os
import sys

import numpy as np
import torch
from safetensors.torch import load_file

import harness as z

sys.path.insert(0, os.path.join(z.ROOT, "models"))
from modules.gpt import GPT, GPTConfig

out = sys.argv[1]
model = GPT(GPTConfig(layers=4, heads=4, width=92, context=128))
missing, unexpected = model.load_state_dict(load_file(os.path.join(out, "gpt.safetensors")), strict=False)
results = [not unexpected and set(missing) <= {"wte.weight", "lm_head.weight"} and len(missing) <= 1]
print(f"{'ok  ' if results[0] else 'FAIL'} names: missing {missing} (the tied one is stored once), unexpected {unexpected}")
with open(os.path.join(out, "metrics.jsonl")) as f:
    losses = [m["loss"] for m in map(json.loads, f) if "loss" in m]
fell = losses[0] - float(np.mean(losses[-10:]))
results.append(len(losses) >= 100 and fell > 1.0)
print(f"{'ok  ' if results[-1] else 'FAIL'} loss over {len(losses)} steps: {losses[0]:.3f} -> {np.mean(losses[-10:]):.3f}")
# One batch of validation text, with learning rate 0: the loss of the checkpoint in Zorse and in PyTorch.
text = os.path.join(out, "held-out.txt")
found = z.run(os.path.join(out, "gpt.zorse"), text, 1, extra=("--load-weights", os.path.join(out, "gpt.safetensors"), "--lr", "0"))[0]["loss"]
ids = torch.from_numpy(np.fromfile(text, np.uint8)[: 16 * 64 + 1].astype(np.int64))
with torch.no_grad():
    expected = float(model(ids[:-1].view(16, 64), ids[1:].view(16, 64)))
results.append(z.check("loss of the checkpoint, Zorse against PyTorch", abs(found - expected) / expected, 1e-5))
z.finish(results)
