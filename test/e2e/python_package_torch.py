"""PyTorch modules through zorse.train: the part of python_package.py that needs PyTorch."""
import os
import subprocess
import sys
import warnings

import numpy as np

import harness as z

PYTHON = os.environ.get("ZORSE_PYTHON", os.path.join(z.ROOT, ".venv", "bin", "python"))


def ensure_torch():
    """Continues this process with a Python that has PyTorch, or ends the test with exit code 77."""
    try:
        import onnx  # noqa: F401
        import torch  # noqa: F401
    except ImportError:
        if os.environ.get("ZORSE_TRIED") or not os.path.exists(PYTHON):
            print("no Python with PyTorch and onnx (tools/python-env.sh makes one, or name one in ZORSE_PYTHON)")
            sys.exit(77)
        sys.exit(subprocess.run([PYTHON, *sys.argv], env=dict(os.environ, ZORSE_TRIED="1")).returncode)


def check(results, folder, holds, said):
    ensure_torch()
    warnings.filterwarnings("ignore")
    import torch
    import zorse
    sys.path.insert(0, os.path.join(z.ROOT, "models"))
    from modules.gpt import GPT, GPTConfig, initialise

    torch.manual_seed(1)
    tokens = np.random.default_rng(0).integers(0, 64, 4000)
    module = initialise(GPT(GPTConfig(vocabulary=64, context=16, layers=2, heads=2, width=32)))
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    run = zorse.train(module, tokens, max_steps=8, global_batch_size=4, seq_length=16, export={"vocabulary": 64}, cluster=z.cluster(folder, ["a", "b"]), lr=1e-2, output=os.path.join(folder, "gpt"))
    now = dict(module.named_parameters(remove_duplicate=False))
    holds(results, "a GPT has its trained weights", all(np.array_equal(now[n].detach().numpy(), run.weights[n]) for n in run.weights) and
          all(not torch.equal(before[n], now[n]) for n in before))
    # The same with the commands, from the exported file.
    bundle, checkpoint = os.path.join(folder, "again.zorse"), os.path.join(folder, "again.safetensors")
    z.compile(os.path.join(folder, "gpt", "model.onnx"), bundle, z.cluster(folder, ["a", "b"]), 4, 16, training={"lr": "1e-2"})
    np.asarray(tokens, "<u2").tofile(os.path.join(folder, "tokens.bin"))
    losses = [m["loss"] for m in z.run(bundle, os.path.join(folder, "tokens.bin"), 8, checkpoint=checkpoint)]
    with open(checkpoint, "rb") as a, open(os.path.join(folder, "gpt", "trained.safetensors"), "rb") as b:
        holds(results, "its losses and bits are the commands'", losses == run.losses and a.read() == b.read())
    with torch.no_grad():
        ids = torch.from_numpy(tokens[:64].reshape(4, 16))
        holds(results, "training continues in PyTorch", torch.isfinite(module(ids, ids)).item())

    class Regression(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(5, 16), torch.nn.Linear(16, 1)

        def forward(self, x, y):
            return ((self.second(torch.tanh(self.first(x))) - y) ** 2).mean()

    x = np.random.default_rng(2).normal(size=(256, 5)).astype(np.float32)
    y = x[:, :1] * 2 - x[:, 1:2]
    model = Regression()
    run = zorse.train(model, {"x": x, "y": y.astype(np.float32)}, max_steps=60, global_batch_size=32, cluster=z.cluster(folder, ["a"]), lr=3e-2, weight_decay=0.0,
                      export={"inputs": {"x": torch.zeros(2, 5), "y": torch.zeros(2, 1)}})
    with torch.no_grad():
        after = float(model(torch.from_numpy(x), torch.from_numpy(y.astype(np.float32))))
    holds(results, f"a regression learns: its loss changes from {run.losses[0]:.2f} to {after:.3f} in PyTorch", after < 0.2 * run.losses[0])

    linear = torch.nn.Linear(3, 2)
    array = np.arange(6, dtype=np.float32)
    zorse.load_into(linear, {"t": array.reshape(3, 2)}, {"t": {"parameter": "weight", "form": "transpose"}})
    holds(results, "a folded transpose is put back", np.array_equal(linear.weight.detach().numpy(), array.reshape(3, 2).T))
    zorse.load_into(linear, {"t": array}, {"t": {"parameter": "weight", "form": "reshape"}})
    holds(results, "another shape is put back", np.array_equal(linear.weight.detach().numpy(), array.reshape(2, 3)))
    said(results, "only some rows", zorse.ZorseError, "contains only some rows of 'weight'", lambda: zorse.load_into(linear, {"t": array}, {"t": {"parameter": "weight", "form": "rows"}}))
    said(results, "no such parameter", zorse.ZorseError, "no parameter 'u'", lambda: zorse.load_into(linear, {"u": array}))
    said(results, "another shape", zorse.ZorseError, "is of shape [6]", lambda: zorse.load_into(linear, {"weight": array}))
