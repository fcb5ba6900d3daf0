"""Compares training from Python with objects of PyTorch (optimizers with parameter groups, schedulers, datasets) and zorse.Trainer with PyTorch's own loop: the
losses of every step and the trained parameters (exit code 77 without PyTorch).
"""
import copy
import os
import sys
import tempfile

import harness as z
from python_package_torch import ensure_torch

os.environ["ZORSE_BIN"] = z.BIN
sys.path.insert(0, os.path.join(z.ROOT, "python"))
ensure_torch()
import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from transformers.optimization import Adafactor  # noqa: E402
import zorse  # noqa: E402

LIMIT = 1e-5  # relative, f32


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(16, 8)
        self.body = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.LayerNorm(12), torch.nn.GELU())
        self.head = torch.nn.Linear(12, 5)

    def forward(self, ids, labels):
        return F.cross_entropy(self.head(self.body(self.embed(ids)).mean(1)), labels)


def samples(count=24, length=6, seed=3):
    random = np.random.default_rng(seed)
    return {"ids": random.integers(0, 16, (count, length)), "labels": random.integers(0, 5, count)}


def reference(model, optimizer, scheduler, data, steps, batch, clip=None):
    """Losses of PyTorch's loop over the samples in their order."""
    losses, count = [], len(next(iter(data.values())))
    for step in range(steps):
        at = [(step * batch + i) % count for i in range(batch)]
        found = model(**{key: torch.as_tensor(value[at]) for key, value in data.items()})
        loss = found if torch.is_tensor(found) else found.loss
        optimizer.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        scheduler.step()
        losses.append(float(loss.detach()))
    return losses


def difference(ours, theirs, model, expected):
    theirs_by_name = dict(expected.named_parameters())
    errors = [abs(a - b) / abs(b) for a, b in zip(ours, theirs)]
    errors += [float((p - theirs_by_name[name]).detach().norm() / theirs_by_name[name].detach().norm().clamp(min=1e-30)) for name, p in model.named_parameters()
               if not name.endswith("c_attn.bias")]  # the gradient of biases of keys is zero, and Adam normalizes its rounding errors
    return float(np.max(errors)) if len(ours) == len(theirs) else float("inf")


def with_objects():
    """Optimizer and scheduler objects."""
    cases = {
        "AdamW, decayed and other parameters, cosine": lambda decayed, others: torch.optim.AdamW([{"params": decayed, "weight_decay": 0.2}, {"params": others, "weight_decay": 0.0}], lr=3e-3),
        "SGD, a rate per group": lambda decayed, others: torch.optim.SGD([{"params": decayed}, {"params": others, "lr": 0.3}], lr=0.05, momentum=0.9, nesterov=True),
        "RMSprop centered": lambda decayed, others: torch.optim.RMSprop(decayed + others, lr=1e-3, centered=True, momentum=0.5, weight_decay=0.01),
        "Adafactor": lambda decayed, others: torch.optim.Adafactor(decayed + others, lr=0.02, weight_decay=0.1),
        "Adafactor of transformers": lambda decayed, others: Adafactor(decayed + others, lr=3e-3, scale_parameter=False, relative_step=False),
        "Adam of some parameters, AMSGrad": lambda decayed, others: torch.optim.Adam(decayed, lr=3e-3, amsgrad=True),
    }
    for name, make in cases.items():
        torch.manual_seed(1)
        model = Classifier()
        expected, data = copy.deepcopy(model), samples()

        def objects(of):
            optimizer = make([p for p in of.parameters() if p.dim() > 1], [p for p in of.parameters() if p.dim() < 2])
            return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)

        optimizer, scheduler = objects(model)
        run = zorse.train(model, data, max_steps=12, global_batch_size=8, optimizer=optimizer, lr_scheduler=scheduler)
        theirs = reference(expected, *objects(expected), data, 12, 8)
        yield z.check(f"{name}: losses and parameters", difference(run.losses, theirs, model, expected), LIMIT)


def with_datasets():
    """Datasets are read as arrays; rows of different length are padded."""
    data = samples()
    tensors = torch.utils.data.TensorDataset(torch.as_tensor(data["ids"]), torch.as_tensor(data["labels"]))
    rows = [{"ids": data["ids"][i], "labels": data["labels"][i], "text": "not an input"} for i in range(24)]
    kinds = {"arrays": data, "TensorDataset": tensors, "DataLoader": torch.utils.data.DataLoader(tensors, 5), "a list of samples": rows}
    losses = {}
    for name, given in kinds.items():
        torch.manual_seed(1)
        losses[name] = zorse.train(Classifier(), given, max_steps=4, global_batch_size=8, lr=1e-2).losses
    for name, found in losses.items():
        yield z.check(f"{name}: losses differ from those of arrays", float(found != losses["arrays"]), 0)


def language_model():
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(2)
    return GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))


class Tokenizer:
    pad_token_id = 0


class Events:
    def __init__(self):
        self.seen = []

    def on_step_end(self, args, state, control, **more):
        self.seen.append(state.global_step)
        if state.global_step == 5:
            control.should_training_stop = True
        return control


def with_trainer():
    from transformers import get_scheduler
    random = np.random.default_rng(5)
    rows = [{"input_ids": (ids := random.integers(1, 40, random.integers(6, 13))), "labels": ids, "attention_mask": np.ones(len(ids), np.int64)} for _ in range(16)]
    with tempfile.TemporaryDirectory() as folder:
        args = zorse.TrainingArguments(output_dir=folder, per_device_train_batch_size=2, gradient_accumulation_steps=2, learning_rate=1e-2, weight_decay=0.1, num_train_epochs=2,
                                 lr_scheduler_type="cosine", warmup_steps=3, logging_steps=1, eval_strategy="epoch")
        model = language_model()
        expected = copy.deepcopy(model)
        trainer = zorse.Trainer(model, args, train_dataset=rows, eval_dataset=rows[:6], processing_class=Tokenizer(), shuffle_seed=None)
        out = trainer.train()
        groups = [{"params": [p for p in expected.parameters() if p.dim() > 1], "weight_decay": 0.1}, {"params": [p for p in expected.parameters() if p.dim() < 2], "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=1e-2)
        scheduler = get_scheduler("cosine", optimizer, num_warmup_steps=3, num_training_steps=8)
        longest = max(len(row["input_ids"]) for row in rows)
        padded = {key: np.stack([np.pad(np.asarray(row[key], np.int64), (0, longest - len(row[key])), constant_values=fill) for row in rows])
                  for key, fill in (("input_ids", 0), ("labels", -100), ("attention_mask", 0))}
        theirs = reference(expected.train(), optimizer, scheduler, padded, 8, 4, clip=1.0)
        yield z.check("Trainer: losses and parameters", difference(trainer.run.losses, theirs, model, expected), LIMIT)
        yield z.check("Trainer: steps", float(out.global_step != 8 or trainer.state.max_steps != 8 or trainer.state.epoch != 2), 0)
        with torch.no_grad():
            loss = float(expected.eval()(**{key: torch.as_tensor(value[:6]) for key, value in padded.items()}).loss)
        yield z.check("Trainer: evaluate", abs(trainer.evaluate()["eval_loss"] - loss) / loss, LIMIT)
        yield z.check("Trainer: evaluations by epoch", float(sum("eval_loss" in line for line in trainer.state.log_history) < 2), 0)
        trainer.save_model(os.path.join(folder, "saved"))
        again = type(model).from_pretrained(os.path.join(folder, "saved"))
        yield z.check("Trainer: save_model", max(float((p - dict(again.named_parameters())[n]).detach().abs().max()) for n, p in model.named_parameters()), 0)
        saving = zorse.TrainingArguments(output_dir=os.path.join(folder, "epochs"), per_device_train_batch_size=4, num_train_epochs=2, save_strategy="epoch")
        zorse.Trainer(language_model(), saving, train_dataset=rows, processing_class=Tokenizer()).train()
        found = sorted(name[5:13] for name in os.listdir(os.path.join(folder, "epochs", "checkpoints")) if name.startswith("step-"))
        yield z.check(f"Trainer: checkpoints by epoch {found}", float(found != ["00000004", "00000008"]), 0)
        events = Events()
        stopped = zorse.Trainer(language_model(), args, train_dataset=rows, eval_dataset=rows[:6], processing_class=Tokenizer(), callbacks=[events])
        stopped.train()
        yield z.check("Trainer: a callback ends the training", float(5 not in events.seen or not stopped.run.stopped and stopped.state.global_step == 8), 0)


def refused():
    """Objects without a counterpart are refused by name."""
    model, data = Classifier(), samples()
    cases = {
        "NAdam": lambda: zorse.train(model, data, max_steps=1, global_batch_size=8, optimizer=torch.optim.NAdam(model.parameters())),
        "dampening=0.5": lambda: zorse.train(model, data, max_steps=1, global_batch_size=8, optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.5)),
        "not one of the module": lambda: zorse.train(model, data, max_steps=1, global_batch_size=8, optimizer=torch.optim.Adam(Classifier().parameters())),
        "ReduceLROnPlateau": lambda: zorse.train(model, data, max_steps=1, global_batch_size=8,
                                                 lr_scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD(model.parameters()))),
        "decides about 'lr'": lambda: zorse.train(model, data, max_steps=1, global_batch_size=8, optimizer=torch.optim.SGD(model.parameters()), lr=0.1),
        "none of its columns": lambda: zorse.train(model, [{"text": "a"}, {"text": "b"}], max_steps=1, global_batch_size=8),
    }
    for said, call in cases.items():
        try:
            call()
            text = "no error"
        except (zorse.ZorseError, TypeError) as error:
            text = str(error)
        yield z.check(f"refused: {said}" + ("" if said in text else f" [{text}]"), float(said not in text), 0)


def main():
    z.finish([good for part in (with_objects, with_datasets, with_trainer, refused) for good in part()])


if __name__ == "__main__":
    main()
