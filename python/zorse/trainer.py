"""zorse.Trainer: the interface of transformers.Trainer on the devices of a cluster."""
from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ._datasets import arrays_of, is_dataset
from ._evaluate import evaluate
from ._metrics import Step
from ._tools import ZorseError, warn
from ._train import Run, train
from .torch_modules import argument_names, unwrapped

_OPTIMIZERS = {"adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_hf": "adamw", "adamw": "adamw", "sgd": "sgd", "rmsprop": "rmsprop", "adagrad": "adagrad",
               "lion": "lion", "lion_32bit": "lion", "adafactor": "adafactor", "adamw_8bit": "adamw8bit", "adamw_bnb_8bit": "adamw8bit", "adamw_torch_8bit": "adamw8bit",
               "paged_adamw_8bit": "adamw8bit"}  #: optim of transformers


@dataclass
class TrainingArguments:
    """Arguments of a training, with the names and defaults of transformers.TrainingArguments, which Trainer takes as well."""
    output_dir: str = "trainer_output"
    per_device_train_batch_size: int = 8  #: samples per step, times gradient_accumulation_steps: the samples of all devices together
    gradient_accumulation_steps: int = 1
    learning_rate: float = 5e-5
    weight_decay: float = 0.0
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    max_grad_norm: float = 1.0
    num_train_epochs: float = 3.0
    max_steps: int = -1  #: if positive, instead of num_train_epochs
    lr_scheduler_type: str = "linear"
    warmup_steps: float = 0  #: steps; below 1: a share of all steps
    warmup_ratio: float = 0.0
    optim: str = "adamw_torch"
    seed: int = 42
    data_seed: int | None = None
    bf16: bool = False
    fp16: bool = False
    eval_strategy: str = "no"
    eval_steps: float | None = None
    save_strategy: str = "no"
    save_steps: float = 500
    save_total_limit: int | None = None
    logging_steps: float = 500


@dataclass
class TrainOutput:
    """Result of Trainer.train."""
    global_step: int
    training_loss: float
    metrics: dict[str, float]


@dataclass
class TrainerState:
    """Progress of a training, as transformers.TrainerState."""
    global_step: int = 0
    max_steps: int = 0
    epoch: float = 0.0
    log_history: list[dict[str, float]] = field(default_factory=list)
    best_metric: float | None = None


class TrainerControl:
    """Flags that callbacks set. should_training_stop ends the training after the steps that have
    begun."""
    should_training_stop = False


def _value(argument: Any) -> Any:
    """The value of an enum of transformers, or the argument itself."""
    return getattr(argument, "value", argument)


class Trainer:
    """Trains a model with the arguments of transformers.Trainer.

    model: a transformers model with a head, or a module that returns its loss. args: TrainingArguments, or those of transformers. train_dataset,
    eval_dataset: datasets of PyTorch or Hugging Face, arrays by input name, or token ids. data_collator: makes a batch from a list of samples; rows of
    different length are padded otherwise. processing_class: the tokenizer. callbacks: objects with methods of transformers.TrainerCallback: on_train_begin, on_step_end, on_log,
    on_evaluate, on_train_end. optimizers: an optimizer and a scheduler of torch.optim, or None. cluster: as for zorse.train. options: further options of
    zorse.train.

    Options of zorse.train that are None use its defaults: shuffle_seed=None reads samples in their order. Learning rates are those of
    transformers, whose first step has the factor of step 0. A step has per_device_train_batch_size * gradient_accumulation_steps samples, however many devices compute it. The samples of an epoch are shuffled with
    data_seed.
    """

    def __init__(self, model: Any, args: Any = None, *, train_dataset: Any = None, eval_dataset: Any = None, data_collator: Callable[[list[Any]], Any] | None = None,
                 processing_class: Any = None, callbacks: Sequence[Any] = (), optimizers: tuple[Any, Any] = (None, None), cluster: Any = None, **options: Any):
        self.model = model
        self.args = TrainingArguments() if args is None else args
        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        self.data_collator, self.processing_class = data_collator, processing_class
        self.callbacks = [callback() if isinstance(callback, type) else callback for callback in callbacks]
        self.optimizers, self.cluster, self.options = optimizers, cluster, options
        self.state, self.control = TrainerState(), TrainerControl()
        self.run: Run | None = None  #: result of the last training

    def train(self, resume_from_checkpoint: bool | str | None = None) -> TrainOutput:
        """Trains, and copies the trained weights into the model.

        resume_from_checkpoint: True resumes from the newest checkpoint in args.output_dir; a path from the newest in this directory.
        """
        data = self._arrays(self.train_dataset, "train_dataset")
        samples, batch = self._samples(data), self._batch()
        steps = self._steps(samples, batch)
        self.state = TrainerState(max_steps=steps)
        self.control = TrainerControl()
        os.makedirs(self.args.output_dir, exist_ok=True)
        options = {**self._optimizer(steps), **self._saving(resume_from_checkpoint, samples, batch, steps), **self.options}
        evaluation = None
        if _value(self.args.eval_strategy) != "no":
            if self.eval_dataset is None:
                raise ZorseError("eval_strategy is set, but there is no eval_dataset")
            evaluation = self._arrays(self.eval_dataset, "eval_dataset")
            options["eval_interval"] = self._interval(self.args.eval_strategy, self.args.eval_steps, samples, batch, steps)
        self._call("on_train_begin")
        logging = self._count(self.args.logging_steps, steps)

        def each(step: Step) -> bool:
            self._note(step, samples / batch, logging)
            return not self.control.should_training_stop

        self.run = train(self.model, data, max_steps=steps, global_batch_size=batch, cluster=self.cluster, eval_data=evaluation, on_step=each,
                         tokenizer=self.processing_class if "generate_interval" in options else None, lr_scheduler=self._scheduler(steps), **options)
        self._call("on_train_end")
        losses = [loss for loss in self.run.losses if loss is not None]
        mean = sum(losses) / len(losses) if losses else math.nan
        seconds = sum(s.seconds or 0 for s in self.run.steps)
        return TrainOutput(self.state.global_step, mean, {"train_loss": mean, "train_runtime": seconds, "epoch": self.state.epoch,
                                                          "train_samples_per_second": len(losses) * batch / seconds if seconds else math.nan})

    def evaluate(self, eval_dataset: Any = None) -> dict[str, float]:
        """The loss of the trained model over a dataset, without dropout."""
        dataset = eval_dataset if eval_dataset is not None else self.eval_dataset
        if dataset is None:
            raise ZorseError("evaluate: expected an eval_dataset")
        if self.run is None:
            raise ZorseError("evaluate: expected a training first; zorse.evaluate evaluates a bundle")
        result = evaluate(self.run, self._arrays(dataset, "eval_dataset"))
        found = {"eval_loss": float(result.loss)}
        self.state.log_history.append({**found, "step": self.state.global_step})
        self._call("on_evaluate", metrics=found)
        return found

    def save_model(self, output_dir: str | None = None) -> None:
        """Writes the model as a directory of the Hugging Face hub, with the tokenizer; a module without
        save_pretrained as model.safetensors."""
        folder = output_dir or self.args.output_dir
        os.makedirs(folder, exist_ok=True)
        if hasattr(self.model, "save_pretrained"):
            self.model.save_pretrained(folder)
        elif self.run is not None:
            self.run.save(os.path.join(folder, "model.safetensors"))
        else:
            raise ZorseError("save_model: expected a training first")
        if hasattr(self.processing_class, "save_pretrained"):
            self.processing_class.save_pretrained(folder)

    def _arrays(self, data: Any, name: str) -> Any:
        if data is None:
            raise ZorseError(f"expected a {name}")
        if not is_dataset(data):
            return data
        names = argument_names(unwrapped(self.model))
        most = None if hasattr(data, "__len__") else max(1, self.args.max_steps) * self._batch()
        return arrays_of(data, names=names, tokenizer=self.processing_class, collate=self.data_collator, most=most, name=name)

    def _samples(self, data: Any) -> int:
        if isinstance(data, Mapping):
            return len(next(iter(data.values())))
        if self.args.max_steps <= 0:
            raise ZorseError("max_steps: expected a number of steps, because the data is no dataset with samples")
        return self._batch() * self.args.max_steps

    def _batch(self) -> int:
        return int(self.args.per_device_train_batch_size) * int(self.args.gradient_accumulation_steps)

    def _steps(self, samples: int, batch: int) -> int:
        if self.args.max_steps > 0:
            return int(self.args.max_steps)
        if samples % batch:
            warn(f"the last {samples % batch} of {samples} samples do not fill a step of {batch}; an epoch has {samples // batch} steps")
        return max(1, math.ceil(samples // batch * self.args.num_train_epochs))

    @staticmethod
    def _count(steps: float | None, of: int) -> int:
        """A number of steps, which may be given as a share of all steps."""
        steps = 0 if steps is None else steps
        return int(steps) if steps >= 1 or steps == 0 else max(1, math.ceil(steps * of))

    def _interval(self, strategy: Any, steps: float | None, samples: int, batch: int, of: int) -> int:
        if _value(strategy) == "epoch":
            return max(1, samples // batch)
        return self._count(steps or self.args.logging_steps, of)

    def _optimizer(self, steps: int) -> dict[str, Any]:
        """Options of optimizer, schedule and precision."""
        args = self.args
        options: dict[str, Any] = {"max_grad_norm": float(args.max_grad_norm or 0), "seed": int(args.seed)}
        options["shuffle_seed"] = int(args.seed if args.data_seed is None else args.data_seed)
        if args.bf16 or args.fp16:
            options["precision"] = "bf16" if args.bf16 else "f16"
        if self.optimizers[0] is not None:
            options["optimizer"] = self.optimizers[0]
        else:
            kind = str(_value(args.optim))
            if kind not in _OPTIMIZERS:
                raise ZorseError(f"optim={kind!r} is not supported; expected one of {', '.join(_OPTIMIZERS)}, or an object of torch.optim in optimizers=")
            options.update(optimizer=_OPTIMIZERS[kind], lr=float(args.learning_rate), weight_decay=float(args.weight_decay), weight_decay_params="rank")
            if _OPTIMIZERS[kind] in ("adamw", "adamw8bit", "lion"):
                options["betas"] = (float(args.adam_beta1), float(args.adam_beta2))
            if _OPTIMIZERS[kind] in ("adamw", "adamw8bit"):
                options["eps"] = float(args.adam_epsilon)
            if _OPTIMIZERS[kind] == "adafactor":  # scale_parameter=False, relative_step=False, eps=(1e-30, 1e-3): the least second moment is the square of eps
                options.update(no_scale_parameter=True, eps=1e-15)
        return options

    def _scheduler(self, steps: int) -> Any:
        """The scheduler, or the factor of the learning rate as a function of the step, from 0."""
        if self.optimizers[1] is not None:
            return self.optimizers[1]
        args = self.args
        kind, more = str(_value(args.lr_scheduler_type)), getattr(args, "lr_scheduler_kwargs", None)
        warmup = self._count(args.warmup_steps, steps) or math.ceil((getattr(args, "warmup_ratio", None) or 0) * steps)
        try:
            from transformers import get_scheduler
        except ImportError:
            if kind not in ("linear", "cosine", "constant", "constant_with_warmup") or more:
                raise ZorseError(f"lr_scheduler_type={kind!r} needs the package transformers; or give a scheduler in optimizers=") from None
            fall = {"linear": lambda part: 1 - part, "cosine": lambda part: 0.5 * (1 + math.cos(math.pi * part))}.get(kind, lambda part: 1.0)
            return lambda step: step / warmup if step < warmup else fall(min(1.0, (step - warmup) / max(1, steps - warmup)))
        import torch
        shadow = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return get_scheduler(kind, shadow, num_warmup_steps=warmup, num_training_steps=steps, scheduler_specific_kwargs=more)
            except (ValueError, TypeError) as error:
                raise ZorseError(f"lr_scheduler_type={kind!r}, lr_scheduler_kwargs={more}: {error}") from None

    def _saving(self, resume: bool | str | None, samples: int, batch: int, steps: int) -> dict[str, Any]:
        args = self.args
        if _value(args.save_strategy) not in ("no", "steps", "epoch"):
            raise ZorseError(f"save_strategy={_value(args.save_strategy)!r} is not supported; expected no, steps or epoch")
        options: dict[str, Any] = {}
        saving = _value(args.save_strategy) != "no"
        if saving or resume:
            options["checkpoint_dir"] = resume if isinstance(resume, str) else os.path.join(args.output_dir, "checkpoints")
            options["save_interval"] = self._interval(args.save_strategy, args.save_steps, samples, batch, steps)
            if args.save_total_limit:
                options["save_total_limit"] = int(args.save_total_limit)
        if resume:
            options["resume"] = True
        return options

    def _note(self, step: Step, per_epoch: float, logging: int) -> None:
        self.state.global_step = step.step
        self.state.epoch = step.step / per_epoch if per_epoch else 0.0
        if step.evaluation:
            found = {"eval_loss": float(step.loss) if step.loss is not None else math.nan}
            self.state.log_history.append({**found, "step": step.step, "epoch": self.state.epoch})
            if self.state.best_metric is None or found["eval_loss"] < self.state.best_metric:
                self.state.best_metric = found["eval_loss"]
            self._call("on_evaluate", metrics=found)
            return
        if logging and (step.step % logging == 0 or step.step == self.state.max_steps):
            logs = {"loss": step.loss, "grad_norm": step.gradient_norm, "learning_rate": step.learning_rate, "epoch": self.state.epoch, "step": step.step}
            self.state.log_history.append({key: value for key, value in logs.items() if value is not None})
            self._call("on_log", logs=self.state.log_history[-1])
        self._call("on_step_end")

    def _call(self, event: str, **more: Any) -> None:
        for callback in self.callbacks:
            method = getattr(callback, event, None)
            if method is not None:
                control = method(self.args, self.state, self.control, model=self.model, **more)
                self.control = control if control is not None else self.control
