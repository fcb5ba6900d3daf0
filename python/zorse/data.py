"""Converts text and JSON lines to token shards for zorse-run: `python -m zorse.data`.

    python -m zorse.data corpus/*.jsonl -o shards --tokenizer ./llama --seq-length 512
    zorse-run model.zorse --data "$(python -m zorse.data --print-args shards)" --max-steps 1000

Output formats:

- A stream (`--packing stream`, the default for plain text): concatenated documents, each followed by the end token, in llm.c's .bin files. zorse-run
  cuts samples from it.
- Rows (`--packing rows` or `pad`, or if something is masked): two arrays per shard, ids and labels of shape [samples, seq]. The label -100 is ignored:
  for prompts, padding, and the first token of a document, which does not depend on the preceding document in its row. `rows` fills rows with
  concatenated documents; `pad` starts every document in its own row.

docs/guides/prepare-data.md describes how the labels of a model are fed.
"""
from __future__ import annotations

import argparse
import fcntl
import glob
import hashlib
import json
import os
import shutil
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ._tools import ZorseError
from .options import Path

IGNORE = -100  #: label that losses ignore by default
_MANIFEST = "data.json"
_HEADERS = {2: 20240520, 4: 20240801}  # magic numbers of llm.c's header by bytes of a token


@dataclass(frozen=True)
class Prepared:
    """Shards that were written."""
    folder: str
    data: str  #: value of `--data`, or of the argument of zorse.train
    documents: int
    tokens: int  #: in all documents, end tokens included
    masked: int  #: number of ignored labels
    samples: int | None  #: rows; None for a stream
    vocabulary: int  #: ids are below this

    def __str__(self) -> str:
        rows = f", {self.samples} rows" if self.samples is not None else ""
        return f"{self.documents} documents, {self.tokens} tokens of a vocabulary of {self.vocabulary}{rows}, {self.masked} labels masked: --data '{self.data}'"


class _Bytes:
    """Bytes as tokens: a tokenizer that needs no file."""
    vocabulary = 256
    end: int | None = None

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8"))


class _File:
    """A tokenizer.json, read by the package `tokenizers`."""

    def __init__(self, path: str):
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise ZorseError(f"--tokenizer {path}: needs the Python package tokenizers (pip install tokenizers)") from None
        try:
            self._tokenizer = Tokenizer.from_file(path)
        except Exception as error:
            raise ZorseError(f"--tokenizer {path}: cannot be read as a tokenizer.json: {error}") from None
        self.vocabulary = self._tokenizer.get_vocab_size(with_added_tokens=True)
        self.end = next((self._tokenizer.token_to_id(name) for name in ("<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "[SEP]")
                         if self._tokenizer.token_to_id(name) is not None), None)

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids


class _Hub:
    """A directory of the Hugging Face hub, read by `transformers`."""

    def __init__(self, path: str):
        try:
            from transformers import AutoTokenizer
        except ImportError:
            raise ZorseError(f"--tokenizer {path}: a directory needs the Python package transformers (pip install transformers); a tokenizer.json needs tokenizers alone") from None
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
        except Exception as error:
            raise ZorseError(f"--tokenizer {path}: transformers cannot read it: {str(error).splitlines()[0]}") from None
        self.vocabulary = len(self._tokenizer)
        self.end = self._tokenizer.eos_token_id

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)


def tokenizer(path: str) -> Any:
    """Returns a tokenizer for "bytes", a tokenizer.json, or a directory with one: an object with
    encode(text), vocabulary and end (an id or None)."""
    if path == "bytes":
        return _Bytes()
    if os.path.isdir(path):
        inside = os.path.join(path, "tokenizer.json")
        return _Hub(path) if os.path.isfile(os.path.join(path, "tokenizer_config.json")) or not os.path.isfile(inside) else _File(inside)
    if os.path.isfile(path):
        return _File(path)
    raise ZorseError(f"--tokenizer {path}: expected bytes, a tokenizer.json or a directory with one, found nothing there")


def _texts(path: str, text_field: str, prompt_field: str | None, completion_field: str | None, separator: str | None) -> Iterator[tuple[str, str]]:
    """The documents of a file, each as a text that is only read and a text that is trained on."""
    if path.endswith((".jsonl", ".ndjson")):
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    record = json.loads(line)
                except ValueError as error:
                    raise ZorseError(f"{path}:{number}: expected a JSON object per line: {error}") from None
                fields = [prompt_field, completion_field] if prompt_field else [text_field]
                values = []
                for field in fields:
                    value = record.get(field) if isinstance(record, dict) else None
                    if not isinstance(value, str):
                        known = ", ".join(f"'{k}'" for k in record) if isinstance(record, dict) else type(record).__name__
                        raise ZorseError(f"{path}:{number}: expected text in the field '{field}', found the fields {known}; --text-field, or --prompt-field and "
                                         "--completion-field, name the fields")
                    values.append(value)
                yield (values[0], values[1]) if prompt_field else ("", values[0])
        return
    if prompt_field:
        raise ZorseError(f"{path}: --prompt-field is a field of JSON lines (.jsonl), and this is plain text")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise ZorseError(f"{path}: expected text in UTF-8: byte {error.start} is invalid") from None
    for part in text.split(separator) if separator else [text]:
        if part:
            yield "", part


class _Streams:
    """Writes shards in llm.c's format."""

    def __init__(self, folder: str, width: int, limit: int):
        self._folder, self._width, self._limit = folder, width, limit
        self._parts: list[np.ndarray] = []
        self._held = self.shards = 0
        self.samples, self.masked = None, 0

    def add(self, ids: np.ndarray, learnt: np.ndarray) -> None:
        self._parts.append(ids.astype(f"<u{self._width}"))
        self._held += len(ids)
        if self._held >= self._limit:
            self.flush()

    def flush(self) -> None:
        if not self._held:
            return
        with open(os.path.join(self._folder, f"tokens-{self.shards:05}.bin"), "wb") as file:
            file.write(struct.pack("<2iI", _HEADERS[self._width], 1, self._held) + bytes(253 * 4))
            for part in self._parts:
                file.write(part.tobytes())
        self.shards += 1
        self._parts, self._held = [], 0

    def finish(self) -> None:
        self.flush()

    def data(self) -> str:
        return "{folder}/tokens-*.bin"


class _Rows:
    """Writes shards of two arrays."""

    def __init__(self, folder: str, sequence: int, limit: int, pad: int | None, labels: str, names: Sequence[str]):
        self._folder, self._sequence, self._limit, self._pad, self._labels, self._names = folder, sequence, limit, pad, labels, names
        self._rows: list[np.ndarray] = []
        self._ids = np.empty(0, np.int64)
        self._learnt = np.empty(0, bool)
        self.shards = self.samples = self.masked = 0

    def add(self, ids: np.ndarray, learnt: np.ndarray) -> None:
        learnt = learnt.copy()
        learnt[:1] = False  # the first token of a document does not depend on the preceding document
        self._ids, self._learnt = np.concatenate([self._ids, ids]), np.concatenate([self._learnt, learnt])
        self._cut(whole=self._pad is not None)

    def _cut(self, whole: bool) -> None:
        """Cuts rows from the buffered tokens; `whole`: also the remainder, padded."""
        size = self._sequence
        ahead = 1 if self._labels == "next" else 0  # labels extend one token beyond their row
        while len(self._ids) >= size + ahead or (whole and len(self._ids) > ahead):
            ids, learnt = self._ids[:size + ahead], self._learnt[:size + ahead]
            missing = size + ahead - len(ids)
            if missing:
                ids = np.concatenate([ids, np.full(missing, self._pad or 0, np.int64)])
                learnt = np.concatenate([learnt, np.zeros(missing, bool)])
            labels = np.where(learnt, ids, IGNORE)[ahead:]
            if (labels != IGNORE).any():  # skip rows without labels
                self._rows.append(np.stack([ids[:size], labels]).astype("<i4"))
                self.masked += int((labels == IGNORE).sum())
                self.samples += 1
            self._ids, self._learnt = self._ids[size:], self._learnt[size:]
            if len(self._rows) * size >= self._limit:
                self.flush()
        if whole:
            self._ids, self._learnt = self._ids[:0], self._learnt[:0]

    def flush(self) -> None:
        if not self._rows:
            return
        rows = np.stack(self._rows)
        for which, name in enumerate(("ids", "labels")):
            np.save(os.path.join(self._folder, f"{name}-{self.shards:05}.npy"), rows[:, which])
        self.shards += 1
        self._rows = []

    def finish(self) -> None:
        self._cut(whole=True)  # the remainder, padded
        self.flush()

    def data(self) -> str:
        return ",".join(f"{name}={{folder}}/{kind}-*.npy" for name, kind in zip(self._names, ("ids", "labels")))


def _fingerprint(files: Sequence[str], settings: dict[str, Any]) -> str:
    """Fingerprint of inputs and options: names, sizes and times of files."""
    facts = [[os.path.abspath(f), os.stat(f).st_size, os.stat(f).st_mtime_ns] for f in files]
    return hashlib.sha256(json.dumps([facts, settings], sort_keys=True).encode()).hexdigest()


def _read(folder: str) -> dict[str, Any] | None:
    try:
        with open(os.path.join(folder, _MANIFEST), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ZorseError(f"{os.path.join(folder, _MANIFEST)}: cannot be read: {error}; remove the folder to prepare the data again") from None


def _prepared(folder: str, manifest: dict[str, Any]) -> Prepared:
    return Prepared(folder, manifest["data"].format(folder=folder.rstrip("/")), *(manifest[key] for key in ("documents", "tokens", "masked", "samples", "vocabulary")))


class _Draft:
    """A new folder next to `folder`, locked while its process runs, so that a later process
    detects and removes the folder of a killed one."""

    def __init__(self, folder: str):
        parent, name = os.path.split(os.path.abspath(folder))
        os.makedirs(parent, exist_ok=True)
        for old in glob.glob(os.path.join(glob.escape(parent), glob.escape(name) + ".preparing.*")):
            self._remove_abandoned(old)
        while True:
            self.path = os.path.join(parent, f"{name}.preparing.{os.urandom(8).hex()}")
            os.mkdir(self.path)
            try:
                self._handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, FileNotFoundError):  # another process is removing it as left over
                continue
            except OSError:  # a file system without locks
                return
            if os.path.isdir(self.path):
                return

    @staticmethod
    def _remove_abandoned(path: str) -> None:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            return
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except OSError:  # its process is running
            pass
        finally:
            os.close(handle)

    def close(self) -> None:
        """Removes the folder if it was not renamed."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._handle)


def prepare(inputs: Path | Sequence[Path], output: Path, *, tokenizer_path: str = "bytes", seq_length: int | None = None,
            packing: Literal["stream", "rows", "pad"] | None = None, labels: Literal["next", "same"] = "next", text_field: str = "text",
            prompt_field: str | None = None, completion_field: str | None = None, separator: str | None = None, eod_token: int | None = None,
            shard_tokens: int = 100_000_000, input_names: Sequence[str] = ("input_ids", "labels")) -> Prepared:
    """Tokenizes files and writes shards into the folder `output`. Does nothing if the same data was already prepared there.

    inputs: files or patterns: JSON lines (.jsonl, .ndjson) with text in `text_field`, or with `prompt_field`, which is only read, and `completion_field`,
    which is trained on; any other file is plain text in UTF-8, one document, or several if they are separated by `separator`. tokenizer_path: "bytes", a
    tokenizer.json, or a directory of the Hugging Face hub. seq_length: tokens per row; required for rows. packing: "stream", "rows" or "pad" (see the module);
    None: a stream, or padded rows if prompts are masked. labels: "next" for models with shifted labels as input, "same" for models that shift them
    themselves. eod_token: id after every document; None: the tokenizer's, if it has one; -1: none. shard_tokens: approximate tokens per shard. input_names: names of
    the model's inputs. Raises ZorseError.
    """
    patterns = [os.fspath(inputs)] if isinstance(inputs, (str, os.PathLike)) else [os.fspath(i) for i in inputs]
    files: list[str] = []
    for pattern in patterns:
        found = [pattern] if os.path.isfile(pattern) else sorted(f for f in glob.glob(pattern) if os.path.isfile(f))
        if not found:
            raise ZorseError(f"{pattern}: expected files of text or JSON lines, found none")
        files += found
    if bool(prompt_field) != bool(completion_field):
        raise ZorseError("--prompt-field and --completion-field belong together: the prompt is only read, the completion is trained on")
    form = packing or ("pad" if prompt_field else "stream")
    if form == "stream" and prompt_field:
        raise ZorseError("--packing stream: a stream of tokens cannot mask prompts; expected rows or pad")
    if form != "stream" and (seq_length is None or seq_length < 2):
        raise ZorseError(f"--seq-length: expected at least 2 tokens per row for --packing {form}; got {seq_length}")
    if shard_tokens < 1:
        raise ZorseError(f"--shard-tokens: expected at least 1, got {shard_tokens}")
    folder = os.fspath(output)
    settings = dict(tokenizer=tokenizer_path, seq=seq_length, pack=form, labels=labels, text=text_field, prompt=prompt_field, completion=completion_field,
                    separator=separator, end=eod_token, shard=shard_tokens, names=list(input_names))
    print_of = _fingerprint(files, settings)
    before = _read(folder)
    if before is not None:
        if before.get("fingerprint") == print_of:
            return _prepared(folder, before)
        raise ZorseError(f"{folder}: contains data prepared from other files or with other options; remove it, or choose another folder")
    if os.path.isdir(folder) and os.listdir(folder):
        raise ZorseError(f"{folder}: expected an empty or new folder, found other files in it")

    words = tokenizer(tokenizer_path)
    end = words.end if eod_token is None else (None if eod_token < 0 else eod_token)
    if end is not None and end >= words.vocabulary:
        words.vocabulary = end + 1
    work = _Draft(folder)
    draft = work.path
    try:
        if form == "stream":
            writer: Any = _Streams(draft, 2 if words.vocabulary <= 1 << 16 else 4, shard_tokens)
        else:
            pad = (end if end is not None else 0) if form == "pad" else None
            writer = _Rows(draft, seq_length, shard_tokens, pad, labels, input_names)
        documents = tokens = 0
        for path in files:
            for read, learnt in _texts(path, text_field, prompt_field, completion_field, separator):
                head, tail = words.encode(read) if read else [], words.encode(learnt) + ([end] if end is not None else [])
                if not tail:
                    continue
                ids = np.asarray(head + tail, np.int64)
                writer.add(ids, np.arange(len(ids)) >= len(head))
                documents += 1
                tokens += len(ids)
        writer.finish()
        if writer.shards == 0:
            raise ZorseError(", ".join(patterns[:3]) + f": too little text for a sample: {documents} documents with {tokens} tokens" +
                             (f", a row has {seq_length}" if form != "stream" else ""))
        manifest = dict(fingerprint=print_of, settings=settings, documents=documents, tokens=tokens, masked=writer.masked, samples=writer.samples,
                        vocabulary=words.vocabulary, end_token=end, shards=writer.shards, data=writer.data())
        with open(os.path.join(draft, _MANIFEST), "w", encoding="utf-8") as file:
            json.dump(manifest, file, indent=1)
        if os.path.isdir(folder):
            os.rmdir(folder)
        os.rename(draft, folder)
    finally:
        work.close()
    return _prepared(folder, manifest)


_RENAMED = {"--say": "--print-args", "--end-token": "--eod-token", "--names": "--input-names"}  #: old names of options


class _Renamed(argparse.Action):
    """Refuses an old name of an option and names the new one."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: str | None = None) -> None:
        parser.error(f"{option_string} is now {self.const}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m zorse.data", description="Converts text and JSON lines to token shards for zorse-run.")
    parser.add_argument("inputs", nargs="*", help="files or patterns: JSON lines (.jsonl, .ndjson) or plain text (all others)")
    parser.add_argument("-o", "--output", help="output folder")
    parser.add_argument("--print-args", metavar="FOLDER", help="print the --data argument for a prepared folder and exit")
    parser.add_argument("--encode", metavar="TEXT", help="print the token ids of a text for zorse-run --prompt and exit")
    parser.add_argument("--tokenizer", default="bytes", help="tokenizer: bytes (default), a tokenizer.json, or a directory of the Hugging Face hub")
    parser.add_argument("--seq-length", type=int, help="tokens per row")
    parser.add_argument("--packing", choices=["stream", "rows", "pad"], help="stream (default), rows (concatenated documents) or pad (one row per document)")
    parser.add_argument("--labels", choices=["next", "same"], default="next", help="labels: next (default, shifted for the model) or same (the model shifts them)")
    parser.add_argument("--text-field", default="text", help="field of JSON lines with the text (default: text)")
    parser.add_argument("--prompt-field", help="field of JSON lines with the prompt, which is not trained on")
    parser.add_argument("--completion-field", help="field of JSON lines with the completion, which is trained on")
    parser.add_argument("--separator", help="separator between documents of a plain text")
    parser.add_argument("--eod-token", type=int, help="id after every document; -1: none (default: the tokenizer's)")
    parser.add_argument("--shard-tokens", type=int, default=100_000_000, help="approximate tokens per shard (default: 100000000)")
    parser.add_argument("--input-names", default="input_ids,labels", help="names of the model's inputs (default: input_ids,labels)")
    for old, now in _RENAMED.items():
        parser.add_argument(old, nargs="?", action=_Renamed, help=argparse.SUPPRESS, default=argparse.SUPPRESS, const=now)
    o = parser.parse_args(arguments)
    try:
        if o.print_args:
            manifest = _read(o.print_args)
            if manifest is None:
                raise ZorseError(f"{o.print_args}: expected a folder that python -m zorse.data has written, found no {_MANIFEST}")
            print(_prepared(o.print_args, manifest).data)
            return 0
        if o.encode is not None:
            print(",".join(str(i) for i in tokenizer(o.tokenizer).encode(o.encode)))
            return 0
        if not o.inputs or not o.output:
            raise ZorseError("expected input files, and -o FOLDER for the shards (--help lists the options)")
        names = o.input_names.split(",")
        if len(names) != 2:
            raise ZorseError(f"--input-names: expected two names of inputs, those of ids and labels, got '{o.input_names}'")
        print(prepare(o.inputs, o.output, tokenizer_path=o.tokenizer, seq_length=o.seq_length, packing=o.packing, labels=o.labels, text_field=o.text_field,
                      prompt_field=o.prompt_field, completion_field=o.completion_field, separator=o.separator, eod_token=o.eod_token,
                      shard_tokens=o.shard_tokens, input_names=names))
        return 0
    except (ZorseError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
