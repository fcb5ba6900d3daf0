"""Compares small models of many architectures (models/small/configurations) with stored PyTorch results, trained on one
device, under a random plan and under a random plan for groups of devices (tensor parallelism).

    breadth_table.py [NAME…]
    breadth_table.py --write NAME…     exports models of models/configurations.py
                                       there, with PyTorch's results (needs PyTorch and transformers:
                                       tools/python-env.sh)

Limits: relative error 1e-6 for the losses of two steps, 1e-5 for the first step's gradients. transformers_families.py
does the same for all families of transformers.
"""
import argparse
import json
import os
import sys
import tempfile

import numpy as np

import harness as z

sys.path.insert(0, os.path.join(z.ROOT, "models"))
sys.path.insert(0, os.path.join(z.ROOT, "python"))
STEPS, DEVICES, RATE = 2, 3, 1e-3
COMMITTED = os.path.join(z.SMALL, "configurations")
LOSS, GRADIENT = 1e-6, 1e-5


def reference(module, inputs):
    """Losses of the steps and the first step's gradients by name, in double precision."""
    import torch

    torch.set_default_dtype(torch.float64)  # also for tensors that a model creates at run time
    module = module.double()
    batch = [t.double() if t.is_floating_point() else t for t in inputs.values()]
    optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=RATE)
    losses, gradients = [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = module(*batch)
        loss.backward()
        if step == 0:
            gradients = {n: p.grad.detach().clone().numpy() for n, p in module.named_parameters(remove_duplicate=False) if p.grad is not None}
        losses.append(float(loss.detach()))
        optimizer.step()
    torch.set_default_dtype(torch.float32)
    return losses, gradients


def write(name):
    """The model, its data and PyTorch's results."""
    import torch
    from configurations import models
    from zorse import export

    model, at = models()[name], os.path.join(COMMITTED, name)
    module, inputs = model.build()
    export(module, at + ".onnx", inputs={key: t[:2] for key, t in inputs.items()}, external_data=False)
    for key, t in inputs.items():
        np.save(f"{at}.{key}.npy", t.numpy().astype(np.float32 if t.is_floating_point() else np.int32))
    losses, gradients = reference(module, inputs)
    np.savez_compressed(at + ".npz", **{n: g.astype(np.float32) for n, g in gradients.items()})
    with open(at + ".json", "w") as f:
        json.dump({"kind": model.kind, "inputs": list(inputs), "batch": len(next(iter(inputs.values()))), "loss": losses, "parameters": sum(p.numel() for p in module.parameters()),
                   "torch": torch.__version__.split("+")[0]}, f)


def compared(scratch, name, bundle, facts, gradients):
    """(relative error of losses, relative error of gradients, location)"""
    data = ",".join(f"{key}={os.path.join(COMMITTED, f'{name}.{key}.npy')}" for key in facts["inputs"])
    dumped = os.path.join(scratch, name + ".gradients.safetensors")
    losses = [m["loss"] for m in z.run(bundle, data, STEPS, gradients=dumped)]
    return z.relative(losses, facts["loss"]), *z.all_gradients_error(z.safetensors(dumped), gradients, GRADIENT)


def tried(name, scratch, clusters):
    """(passed, remark)"""
    at, worst = os.path.join(COMMITTED, name), (0.0, 0.0)
    with open(at + ".json") as f:
        facts = json.load(f)
    with np.load(at + ".npz") as f:
        gradients = {key: f[key] for key in f.files}
    for run, kind in enumerate(("on one device", "under a random plan", "with groups")):
        bundle, plan = os.path.join(scratch, f"{run}.zorse"), []
        if run:
            plan = ["--plan", os.path.join(scratch, "plan.json")]
            place = os.path.join(scratch, "0.zorse", "summary.pb"), DEVICES, facts["batch"], sum(map(ord, name)) + run, plan[1]
            z.random_groups(*place) if kind == "with groups" else z.call("random-plan", *place)
        words = ["zorse-compile", at + ".onnx", "--cluster", clusters[run], "--global-batch-size", facts["batch"], "--precision", "f64", "--optimizer", "sgd", "--momentum", "0", "--lr", RATE, "--warmup-steps", "0", "--max-grad-norm", "0",
                 "--weight-decay", "0", "--quiet", "-o", bundle, *plan]
        while kind == "with groups" and z.remedied(plan[1], z.call(*words, ok=False)[2]):
            pass
        z.call(*words)
        loss, error, where = compared(scratch, name, bundle, facts, gradients)
        worst = max(worst[0], loss), max(worst[1], error)
        if not (loss <= LOSS and error <= GRADIENT):
            return False, f"{kind}: loss off by {loss:.1e}, gradients by {error:.1e} ({where})"
    return True, f"loss {worst[0]:.1e}, gradients {worst[1]:.1e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--write", action="store_true", help="write the exports of these models")
    given = parser.parse_args()
    if given.write:
        for name in given.names:
            write(name)
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        devices = [f"d{i}" for i in range(DEVICES)]
        clusters = z.cluster(scratch, ["d0"]), z.cluster(scratch, devices), z.cluster(scratch, [d + half for d in devices for half in "ab"])
        for name in given.names or sorted(name.removesuffix(".onnx") for name in os.listdir(COMMITTED) if name.endswith(".onnx")):
            try:
                holds, remark = tried(name, scratch, clusters)
            except z.Failure as problem:
                holds, remark = False, str(problem)
            print(f"{'ok  ' if holds else 'FAIL'} {name}: {remark}", flush=True)
            results.append(holds)
    z.finish(results, f"models that train to PyTorch's losses (limit {LOSS:g}) and first gradients (limit {GRADIENT:g}) on one device, under a random plan and with groups")


if __name__ == "__main__":
    main()
