"""Datasets of PyTorch and Hugging Face as arrays by input name."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ._tools import ZorseError, warn

_IGNORE = -100  #: label that losses ignore by default
_LABELS = ("labels", "label", "label_ids")


def is_dataset(data: Any) -> bool:
    """Whether data is a torch or Hugging Face dataset, a DataLoader, or a list of samples."""
    if isinstance(data, Mapping) or isinstance(data, (str, bytes)) or hasattr(data, "__fspath__") or hasattr(data, "dtype"):
        return False
    if isinstance(data, (list, tuple)):
        return bool(data) and isinstance(data[0], (Mapping, tuple, list)) and not isinstance(data[0], (str, bytes)) and (isinstance(data[0], Mapping) or not np.isscalar(_first(data[0])))
    return hasattr(data, "column_names") or hasattr(data, "__getitem__") and hasattr(data, "__len__") or _is_loader(data) or _is_iterable_dataset(data)


def _first(values: Sequence[Any]) -> Any:
    return values[0] if len(values) else 0


def _is_loader(data: Any) -> bool:
    return hasattr(data, "batch_sampler") and hasattr(data, "dataset")


def _is_iterable_dataset(data: Any) -> bool:
    return hasattr(data, "__iter__") and any(kind.__name__ == "IterableDataset" for kind in type(data).__mro__)


def arrays_of(data: Any, *, names: Sequence[str], tokenizer: Any = None, collate: Callable[[list[Any]], Any] | None = None, most: int | None = None,
              name: str = "data") -> dict[str, np.ndarray]:
    """Reads a dataset into one array per input, samples first.

    names: the module's inputs, in order; columns that it does not have are left out, and samples that are tuples are assigned in this order. tokenizer: its pad_token_id
    fills rows of different length. collate: makes a batch from a list of samples, as DataLoader's collate_fn. most: maximum number of samples that are read,
    required for datasets without length. A DataLoader is read in its order, once.
    """
    rows: dict[str, list[np.ndarray]] = {}
    count = 0
    for batch in _batches(data, collate, most, name):
        batch = _named(batch, names, name)
        for key, values in batch.items():
            rows.setdefault(key, []).extend(values)
        count += len(next(iter(batch.values()), ()))
        if most is not None and count >= most:
            break
    if not count:
        raise ZorseError(f"{name}: expected at least one sample, got none")
    uneven = [key for key, values in rows.items() if len(values) != count]
    if uneven:
        raise ZorseError(f"{name}: {len(rows[uneven[0]])} of {count} samples have '{uneven[0]}'")
    return {key: _stacked(key, values, tokenizer, name) for key, values in rows.items()}


def arrays_of_batch(batch: Any, *, names: Sequence[str], tokenizer: Any = None) -> dict[str, np.ndarray]:
    """One array per input of a batch, samples first, as arrays_of."""
    rows = _named(batch, names, "batch")
    counts = {key: len(values) for key, values in rows.items()}
    if len(set(counts.values())) > 1 or not all(counts.values()):
        raise ZorseError("batch: expected the same number of samples for every input, got " + ", ".join(f"{key}: {count}" for key, count in counts.items()))
    return {key: _stacked(key, values, tokenizer, "batch") for key, values in rows.items()}


def _batches(data: Any, collate: Callable[[list[Any]], Any] | None, most: int | None, name: str) -> Iterable[Any]:
    if _is_loader(data):
        if type(getattr(data, "sampler", None)).__name__ == "RandomSampler":
            warn(f"{name}: the DataLoader shuffles; its samples are read once, in the order of one epoch. Give its dataset and shuffle_seed= for another order in every epoch")
        yield from data
        return
    if most is None and not hasattr(data, "__len__"):
        raise ZorseError(f"{name}: {type(data).__name__} has no length; expected a dataset with __len__")
    samples: list[Any] = []
    for i, sample in enumerate(data if _is_iterable_dataset(data) or hasattr(data, "column_names") else (data[k] for k in range(len(data)))):
        if most is not None and i >= most:
            break
        samples.append(sample)
        if collate is not None and len(samples) == 64:
            yield collate(samples)
            samples = []
    if collate is not None:
        if samples:
            yield collate(samples)
        return
    for sample in samples:
        yield _one(sample)


def _one(sample: Any) -> Any:
    """A sample as a batch of one."""
    if isinstance(sample, Mapping):
        return {key: [value] for key, value in sample.items()}
    return tuple([value] for value in (sample if isinstance(sample, (tuple, list)) else (sample,)))


def _named(batch: Any, names: Sequence[str], name: str) -> dict[str, list[np.ndarray]]:
    if isinstance(batch, Mapping) or hasattr(batch, "keys"):
        found = {key: batch[key] for key in batch.keys()}
    else:
        values = batch if isinstance(batch, (tuple, list)) else (batch,)
        if len(values) > len(names):
            raise ZorseError(f"{name}: samples have {len(values)} values, and the module takes {', '.join(names)}")
        found = dict(zip(names, values))
    for label in _LABELS[1:]:  # names that Hugging Face's collators rename
        if label in found and label not in names and "labels" in names:
            found["labels"] = found.pop(label)
    kept = {key: [np.asarray(v.detach().cpu() if hasattr(v, "detach") else v) for v in value] for key, value in found.items() if key in names and value is not None}
    if not kept:
        raise ZorseError(f"{name}: none of its columns {', '.join(map(str, found)) or '(none)'} is an input of the module, which takes {', '.join(names)}"
                         + ("; tokenize texts first: dataset.map(lambda row: tokenizer(row['text']))" if any(isinstance(_first(v) if isinstance(v, (list, tuple)) else v, str) for v in found.values()) else ""))
    return kept


def _stacked(key: str, values: list[np.ndarray], tokenizer: Any, name: str) -> np.ndarray:
    if any(value.dtype.kind in "OUS" for value in values[:64]):
        raise ZorseError(f"{name}: '{key}' has values of type {values[0].dtype}; expected numbers")
    if all(value.shape == values[0].shape for value in values):
        return np.stack(values)
    if any(value.ndim != 1 for value in values):
        raise ZorseError(f"{name}: samples have different shapes of '{key}' ({list(values[0].shape)} and others); resize or pad them")
    fill = _IGNORE if key in _LABELS else 0
    if key == "input_ids":
        fill = getattr(tokenizer, "pad_token_id", None)
        if fill is None:
            fill = getattr(tokenizer, "eos_token_id", None)
        if fill is None:
            raise ZorseError(f"{name}: rows of '{key}' have different lengths; give tokenizer=, whose pad_token_id fills them, or a data collator")
    longest = max(len(value) for value in values)
    padded = np.full((len(values), longest), fill, values[0].dtype)
    for row, value in zip(padded, values):
        row[:len(value)] = value
    return padded
