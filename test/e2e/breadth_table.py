"""Models of many architectures against PyTorch in double precision: Hugging Face configurations with random weights and modules of our own
(models/configurations.py), exported here, trained on one device and under two random plans. Needs PyTorch and transformers (tools/python-env.sh), but for --committed.

    breadth_table.py [NAME…] [--list] [--keep FOLDER] [--import-only] [--save FILE]
    breadth_table.py --committed       the exports in models/small/configurations, which breadth_table.py --keep FOLDER writes

Losses of two steps agree to 1e-6 and the first step's gradients to 1e-5, relatively. A model that mixes samples by nature holds if it is refused in these words.
"""
import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
import warnings

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

    torch.set_default_dtype(torch.float64)  # also of numbers that a model makes as it runs
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


def exported(name, model, folder):
    """Writes the model, its data and PyTorch's results, unless they are there. Returns what they are called."""
    path, facts = os.path.join(folder, name + ".onnx"), os.path.join(folder, name + ".json")
    if not os.path.exists(facts):
        import torch
        from zorse import export

        module, inputs = model.build()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            export(module, path, inputs={key: t[:2] for key, t in inputs.items()}, external_data=False)
        for key, t in inputs.items():
            np.save(os.path.join(folder, f"{name}.{key}.npy"), t.numpy().astype(np.float32 if t.is_floating_point() else np.int32))
        losses, gradients = reference(module, inputs)
        np.savez_compressed(os.path.join(folder, name + ".npz"), **{n: g.astype(np.float32) for n, g in gradients.items()})
        with open(facts, "w") as f:
            json.dump({"kind": model.kind, "inputs": list(inputs), "batch": len(next(iter(inputs.values()))), "loss": losses, "parameters": sum(p.numel() for p in module.parameters()), "torch": torch.__version__.split("+")[0]}, f)
    with open(facts) as f:
        return path, json.load(f)


def compared(folder, scratch, name, bundle, facts, gradients):
    """(relative error of losses, of gradients, where)"""
    data = ",".join(f"{key}={os.path.join(folder, f'{name}.{key}.npy')}" for key in facts["inputs"])
    dumped = os.path.join(scratch, name + ".gradients.safetensors")
    losses = [m["loss"] for m in z.run(bundle, data, STEPS, gradients=dumped)]
    found = z.safetensors(dumped)
    known = {n: g for n, g in found.items() if n in gradients}
    strangers = {n: g for n, g in found.items() if n not in gradients and np.abs(g).max(initial=0) > 0}
    if strangers or not known:
        raise z.Failure(f"gradients of parameters that PyTorch has none for: {sorted(strangers)[:3]}")
    error, worst = z.gradient_error(known, gradients)
    total = np.sqrt(sum(float(np.sum(np.square(g))) for g in gradients.values()))
    shapes = {n: tuple(g.shape) for n, g in found.items()}
    for missing in set(gradients) - set(found):  # ties have one name; what is missing otherwise has to be zero
        if np.linalg.norm(gradients[missing]) > GRADIENT * total and not any(np.array_equal(gradients[missing], gradients[n]) for n in shapes if n in gradients):
            raise z.Failure(f"no gradient of '{missing}'")
    return z.relative(losses, facts["loss"]), error, worst


def first_line(problem):
    lines = [line for line in str(problem).splitlines() if "error:" in line] or str(problem).splitlines() or [""]
    return lines[0].strip()


def tried(name, model, folder, scratch, clusters, import_only):
    """(outcome, remark): outcome is holds, refused, fails, or unwritten (by PyTorch's exporter)."""
    try:
        path, facts = exported(name, model, folder)
    except Exception as problem:  # of the exporter or of the model
        return "unwritten", f"PyTorch exports it not: {type(problem).__name__}: {str(problem).strip().splitlines()[0][:160] if str(problem).strip() else ''}"
    batch = facts["batch"]
    if import_only:
        code, out, err = z.call("zorse-import", path, "--quiet", "--batch", batch, "--precision", "f64", ok=False)
        return ("holds", "imports") if code == 0 else ("refused", first_line(err))
    gradients, worst = np.load(os.path.join(folder, name + ".npz")), (0.0, 0.0, "")
    gradients = {key: gradients[key] for key in gradients.files}
    try:
        for run in range(3):
            bundle, plan = os.path.join(scratch, f"{run}.zorse"), None
            if run:
                plan = os.path.join(scratch, "plan.json")
                z.call("zorse-plan", "--random", sum(map(ord, name)) + run, "--summary", os.path.join(scratch, "0.zorse", "summary.pb"), "--devices", DEVICES, "--batch", batch, "-o", plan)
            words = ["zorse-compile", path, "--cluster", clusters[bool(run)], "--batch", batch, "--precision", "f64", "--optimizer", "sgd", "--momentum", "0", "--lr", RATE, "--warmup", "0", "--clip", "0",
                     "--weight-decay", "0", "--quiet", "-o", bundle]
            z.call(*words, *(["--plan", plan] if plan else []))
            loss, error, where = compared(folder, scratch, name, bundle, facts, gradients)
            worst = max(worst[0], loss), max(worst[1], error), where if error >= worst[1] else worst[2]
            if not (loss <= LOSS and error <= GRADIENT):
                return "fails", f"{'under random plan ' + str(run) if run else 'on one device'}: loss off by {loss:.1e}, gradients by {error:.1e} ({where})"
    except z.Failure as problem:
        said = first_line(problem)
        return ("refused" if "zorse-compile" in str(problem).splitlines()[0] else "fails"), said
    return "holds", f"loss {worst[0]:.1e}, gradients {worst[1]:.1e}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--keep", metavar="FOLDER", help="keep the exports there, and use those that are there")
    parser.add_argument("--committed", action="store_true", help="the models that are kept with the sources, without PyTorch")
    parser.add_argument("--import-only", action="store_true", help="say which are imported, and train nothing")
    parser.add_argument("--save", metavar="FILE", help="write the outcomes as JSON: tools/operators_page.py makes a page of them")
    parser.add_argument("--least", type=int, default=0, help="fail where fewer hold")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    if given.committed:
        names = sorted(name.removesuffix(".onnx") for name in os.listdir(COMMITTED) if name.endswith(".onnx"))
        table, given.keep = dict.fromkeys(names), COMMITTED
    else:
        os.environ["TRANSFORMERS_VERBOSITY"] = "error"
        import logging

        logging.disable(logging.WARNING)
        from configurations import models

        table = models()
    if given.list:
        return print(*table, sep="\n")
    outcomes = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or temporary
        os.makedirs(folder, exist_ok=True)
        clusters = z.cluster(temporary, ["d0"]), z.cluster(temporary, [f"d{i}" for i in range(DEVICES)])
        for name in given.names or table:
            outcome, remark = tried(name, table[name], folder, temporary, clusters, given.import_only)
            if table[name] and table[name].mixes and outcome == "refused" and table[name].mixes in remark:
                outcome = "mixes"
            outcomes[name] = {"kind": table[name].kind if table[name] else "", "outcome": outcome, "remark": remark.replace(folder + "/", "")}
            print(f"{outcome:8} {name}: {outcomes[name]['remark']}", flush=True)
    if given.save:
        with open(given.save, "w") as f:
            json.dump(outcomes, f, indent=1)
    count = {kind: sum(o["outcome"] == kind for o in outcomes.values()) for kind in ("holds", "mixes", "refused", "fails", "unwritten")}
    least = given.least or len(outcomes) - count["mixes"] - count["unwritten"]
    print(f"{count['holds']} of {len(outcomes)} models train to PyTorch's losses (limit {LOSS:g}) and first gradients (limit {GRADIENT:g}) on one device and under two random plans (at least "
          f"{least}); {count['mixes']} mix samples and are refused, {count['refused']} others are refused, {count['fails']} fail, {count['unwritten']} cannot be exported")
    return 1 if count["holds"] < least else 0


if __name__ == "__main__":
    sys.exit(main())
