"""One rank of PyTorch on a cluster made of one machine. worth.py starts one per device and sends it commands as lines
of JSON.

    torch_cluster.py --rank R --ranks N --store FILE --model gpt-6x384 --data FILE --batch B --sequence S --units FRACTION,...

PyTorch is imported and the group is formed before the process enters its control group (command `join`); with 18 % of a
CPU this would take minutes. Commands:

    {"do": "join", "file": PATH, "processor": P}       the process enters a control group and is pinned to a CPU
    {"do": "make", "name": N, "kind": K, ...}          builds a model with initial weights and its optimizer, wrapped as requested
    {"do": "run", "name": N, "steps": S}               continues training; answers with times on the machine's monotonic clock, and losses
    {"do": "drop", "name": N}

Kinds: own (this device alone), ddp and fsdp (`rows`: samples of every rank; `microbatch`: rows that are computed
together), pipeline (`cuts`, `schedule`, `microbatches`).
Loss: mean over all tokens of the batch, for any shares. Optimizer: fused AdamW. One thread; nothing is logged within a
step.
"""
import argparse
import contextlib
import gc
import json
import os
import sys
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models"))
from benchmark_models import build

parser = argparse.ArgumentParser()
parser.add_argument("--rank", type=int, required=True)
parser.add_argument("--ranks", type=int, required=True)
parser.add_argument("--store", required=True)
parser.add_argument("--model", required=True)
parser.add_argument("--data", required=True)
parser.add_argument("--batch", type=int, required=True)
parser.add_argument("--sequence", type=int, required=True)
a = parser.parse_args()
torch.set_num_threads(1)
tokens = torch.from_numpy(np.fromfile(a.data, dtype=np.uint8).astype(np.int64))


def samples(step, first, end):
    """Inputs and labels of samples [first, end) of a step, as zorse-run reads them from a file of bytes."""
    at = (step * a.batch + first) * a.sequence
    rows = end - first
    return tokens[at:at + rows * a.sequence].view(rows, -1), tokens[at + 1:at + 1 + rows * a.sequence].view(rows, -1)


def optimizer_of(modules):
    parameters = {id(p): p for m in modules for p in m.parameters()}.values()
    groups = [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1}, {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)


def fresh_model():
    return build(a.model).train()


def summed(model, ids, labels):
    """The sum over tokens, from which every kind computes its part of the mean."""
    logits = model(ids)
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.reshape(-1), reduction="sum")


class Logits(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model.logits(ids)


class DataParallel:
    """Own, DDP and FSDP2: every rank trains the whole model on its samples; gradients are sums over ranks of parts of the mean."""

    def __init__(self, kind, rows, microbatch, reshard=False):
        self.kind, self.microbatch, self.step, self.me = kind, microbatch, 0, 0 if kind == "own" else a.rank
        self.first, self.end = sum(rows[:self.me]), sum(rows[:self.me + 1])
        self.model, self.scale = Logits(fresh_model()), 1 / (a.batch * a.sequence)
        if kind == "ddp":
            self.model, self.scale = DistributedDataParallel(self.model, gradient_as_bucket_view=True), self.scale * a.ranks  # DDP computes the mean over ranks
        elif kind == "fsdp":
            for block in self.model.model.h:
                fully_shard(block, reshard_after_forward=reshard)
            fully_shard(self.model, reshard_after_forward=reshard)
            for module in self.model.modules():
                if hasattr(module, "set_gradient_divide_factor"):
                    module.set_gradient_divide_factor(1.0)
                    module.set_force_sum_reduction_for_comms(True)
        self.optimizer = optimizer_of([self.model])

    def quiet(self, last):
        """Reduces the gradients of a batch in parts only once."""
        if self.kind == "fsdp":
            self.model.set_requires_gradient_sync(last)
        return contextlib.nullcontext() if self.kind != "ddp" or last else self.model.no_sync()

    def train(self):
        self.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for first in range(self.first, self.end, self.microbatch):
            end = min(self.end, first + self.microbatch)
            with self.quiet(end == self.end):
                loss = summed(self.model, *samples(self.step, first, end)) * self.scale
                loss.backward()
            total += loss.detach()
        self.optimizer.step()
        self.step += 1
        return float(total) / (a.ranks if self.kind == "ddp" else 1)


class Embedding(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.wte, self.wpe = model.wte, model.wpe

    def forward(self, ids):
        return self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))


class Half(nn.Module):
    """Half a block: x + f(norm(x))."""

    def __init__(self, norm, inner):
        super().__init__()
        self.norm, self.inner = norm, inner

    def forward(self, x):
        return x + self.inner(self.norm(x))


class Head(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.ln_f, self.lm_head = model.ln_f, nn.Linear(model.config.width, model.config.vocabulary, bias=False)
        self.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())  # tied: the gradients of both are summed

    def forward(self, x):
        return self.lm_head(self.ln_f(x))


class Pipeline:
    def __init__(self, cuts, schedule, microbatches):
        model, self.step = fresh_model(), 0
        halves = [h for b in model.h for h in (Half(b.ln_1, b.attn), Half(b.ln_2, b.mlp))]
        units = [Embedding(model)] + halves + [Head(model)]
        self.part = nn.Sequential(*units[cuts[a.rank]:cuts[a.rank + 1]])
        self.first, self.last = a.rank == 0, a.rank == a.ranks - 1
        self.ends = ends
        self.optimizer = optimizer_of([self.part])
        stage = PipelineStage(self.part, a.rank, a.ranks, torch.device("cpu"))
        mean = lambda logits, labels: F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.reshape(-1))
        self.schedule = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}[schedule](stage, microbatches, loss_fn=mean)

    def train(self):
        self.optimizer.zero_grad(set_to_none=True)
        ids, labels = samples(self.step, 0, a.batch)
        losses = []
        self.schedule.step(*([ids] if self.first else []), **({"target": labels, "losses": losses} if self.last else {}), return_outputs=False)
        if self.first:
            dist.all_reduce(self.part[0].wte.weight.grad, group=self.ends)
        if self.last:
            dist.all_reduce(self.part[-1].lm_head.weight.grad, group=self.ends)
        self.optimizer.step()
        self.step += 1
        return float(sum(losses)) / len(losses) if self.last else 0.0


def run(trainer, steps, alone):
    if not alone:
        dist.barrier()
    begin, losses, ends = time.monotonic(), [], []
    for _ in range(steps):
        losses.append(trainer.train())
        ends.append(time.monotonic())
    return {"begin": begin, "ends": ends, "losses": losses}


def main():
    global ends
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of libraries is not part of an answer
    dist.init_process_group("gloo", init_method=f"file://{a.store}", rank=a.rank, world_size=a.ranks, timeout=timedelta(seconds=300))
    ends = dist.new_group(sorted({0, a.ranks - 1}))
    trainers = {}
    gc.disable()  # a garbage collection takes half a second on a device with 18 % of a CPU
    for line in sys.stdin:
        c = json.loads(line)
        what, name, answer = c.pop("do"), c.pop("name", None), {}
        if what == "join":
            with open(c["file"], "w") as f:
                f.write(str(os.getpid()))
            if c["processor"] is not None:
                for thread in os.listdir("/proc/self/task"):
                    os.sched_setaffinity(int(thread), {c["processor"]})
        elif what == "make":
            kind = c.pop("kind")
            trainers[name] = Pipeline(**c) if kind == "pipeline" else DataParallel(kind, **c)
            trainers[name].alone = kind == "own"
        elif what == "run":
            answer = run(trainers[name], c["steps"], trainers[name].alone)
        elif what == "drop":
            trainers.pop(name, None)
            gc.collect()
        answers.write(json.dumps(answer) + "\n")
    os._exit(0)  # the group is not shut down: the peers have already exited


main()
