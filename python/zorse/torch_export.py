"""Export a PyTorch language model with its loss to ONNX in the form that Zorse supports best: every parameter with its own name and layout, batch and
sequence dynamic.

From Python:
    import zorse
    zorse.export(module, "model.onnx", sequence=512)             # module(input_ids, labels) -> loss

From the shell (python -m zorse.torch_export, and in a clone python models/export.py, are the same), any Hugging Face causal LM (a configuration class, a directory or a name that transformers can load):
    zorse-torch-export --hf GPT2Config --set n_layer=12 --sequence 1024 -o gpt2.onnx
    zorse-torch-export --hf llama-directory --lora r=8,alpha=16,targets=q_proj,v_proj -o adapters.onnx

For Hugging Face classes, the graph contains the loss and shifts the labels itself, so the tool feeds labels = ids.
"""
import argparse
import ast
import contextlib
import io
import logging
import os
import re
import sys
import tempfile
import traceback
import warnings

import torch

from . import experts, lora
from ._check import LARGE, begun
from ._export_process import isolated
from ._file_process import file_process
from ._functions import written
from ._module_step import unchanged
from ._rewrites import WrittenOut
from ._tools import ZorseError
from .metadata import KEY, OLD_KEY, settle, write_metadata


class WithLoss(torch.nn.Module):
    """A Hugging Face causal LM as input_ids, labels -> loss."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, labels):
        return self.model(input_ids=input_ids, labels=labels, use_cache=False).loss


@contextlib.contextmanager
def in_training_mode(module):
    """A module is exported in training mode, because exporters keep dropout only in this mode.
    Restores the module afterwards."""
    with unchanged(module):
        module.train()
        yield


@contextlib.contextmanager
def silent():
    """Suppresses output of native code: PyTorch's exporters print whole graphs before they refuse
    one."""
    with open(os.devnull, "wb") as nowhere, contextlib.ExitStack() as stack:
        for number in (1, 2):
            with contextlib.suppress(OSError):  # closed, as in a process without a terminal
                kept = os.dup(number)
                stack.callback(os.close, kept)
                stack.callback(os.dup2, kept, number)
                os.dup2(nowhere.fileno(), number)
        yield


def reads_values(text):
    """What to do if an export error says that forward decides by values of data."""
    if "data-dependent" not in text:
        return ""
    line = re.search(r'raised this error:\s+File "([^"]+)", line (\d+)', text) or re.search(r"Caused by: \((\S+):(\d+) in", text)
    return (f". Forward depends on the values of data{f' in {line[1]}, line {line[2]}' if line else ''} (an if, item(), a check of values, a shape): "
            "write it with operations of tensors, such as torch.where")


@contextlib.contextmanager
def quietly(path):
    """Suppresses output of PyTorch and its exporter. An export error becomes a ZorseError with its
    root cause; `details` contains the whole error."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    printed = io.StringIO()
    try:
        with silent(), warnings.catch_warnings(), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            warnings.simplefilter("ignore")
            yield
    except ZorseError:
        raise
    except Exception as error:
        cause = error
        while (cause.__cause__ or cause.__context__) is not None:
            cause = cause.__cause__ or cause.__context__
        if isinstance(cause, ZorseError):
            raise cause from None
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
        remedy = reads_values(str(cause))
        said = lines[0][:200].removesuffix(".") + remedy if remedy else " ".join(lines[:2])[:600]
        problem = ZorseError(f"{path}: PyTorch cannot export the module: {type(cause).__name__}: {said}")
        problem.details = printed.getvalue() + "".join(traceback.format_exception(error))
        raise problem from None
    finally:
        logging.disable(before)


def make_names_unique(model):
    """Renames results of nodes that have the name of something else: PyTorch's exporter calls a mean `mean` even if a buffer has this name, and both
    would be one value. Returns the same as rename_clashes."""
    graph = model.graph
    renamed = rename_clashes(graph)
    kept = [*graph.initializers.values(), *graph.inputs, *graph.outputs]
    results = [value for node in graph for value in node.outputs if value.name and not any(value is output for output in graph.outputs)]
    held, number = {value.name for value in kept}, 0
    names = held | {value.name for value in results}
    for value in results:
        if value.name not in held:
            held.add(value.name)
            continue
        while f"{value.name}.{number}" in names:
            number += 1
        value.name = f"{value.name}.{number}"
        names.add(value.name)
        held.add(value.name)
    return renamed


def rename_clashes(graph):
    """Renames parameters and buffers that have the name of an input or output. Returns the module's
    names by initializer name."""
    ends, renamed = [*graph.inputs, *graph.outputs], {}
    for name, value in [*graph.initializers.items()]:
        if any(name == end.name and value is not end for end in ends):
            value.name = f"{name}.of_module"
            renamed[value.name] = name
    return renamed


def renamed_by_torchscript(module, path):
    """The same for TorchScript's exporter, which renames them itself: a parameter x next to an
    input x is called x.1."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    known = {name for name, _ in [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]}
    ends = {end.name for end in [*graph.input, *graph.output]} & known
    names = [(i.name, i.name.rpartition(".")) for i in graph.initializer if i.name not in known]
    return {name: before for name, (before, _, number) in names if before in ends and number.isdigit()}


def export(module, path, sequence=64, rows=2, vocabulary=256, opset=20, dynamic=True, external_data=None, dynamo=True, optimize=False, inputs=None,
           outputs=("loss",), hub=None, trust=False):
    """Write `module`, called as module(input_ids, labels), to `path`, in training mode.

    rows and sequence: shape of the example input; with dynamic=True both axes stay symbolic. optimize=False keeps every parameter with its
    name and layout: the exporter's optimizer merges equal ones, and training such a file ties parameters that the model does not tie.
    Facts that the file does not contain by default (frozen parameters, ties, padding_idx, detach) are written into it: metadata.py.
    external_data: None writes weights to a file next to the model from 1.5 GB on, True always, False never.
    inputs: example tensors by name, in the order of forward's arguments, for models with other inputs than ids and labels. Their first
    axis is the samples and stays symbolic; all others are fixed.
    hub: names of parameters in checkpoints of the Hugging Face hub, for modules that are not of transformers (hub_names.py).
    trust: whether to skip the comparison of a training step of the file with one of the module (_check.py).
    Raises ZorseError if the file would train differently from the module, and names the module in which they differ.
    """
    batch = length = None
    tokens = inputs is None
    if dynamic:
        limit = getattr(getattr(module, "config", None), "context", None)
        batch, length = torch.export.Dim("batch", min=1, max=65536), torch.export.Dim("sequence", min=2, max=limit or 1 << 20)
    if tokens:
        ids = torch.randint(0, vocabulary, (rows, sequence), generator=torch.Generator().manual_seed(0))
        inputs = {"input_ids": ids, "labels": ids.clone()}  # a separate tensor: passing one tensor twice drops an input
        shapes = [{0: batch, 1: length}] * 2
    else:
        shapes = [{0: batch} for _ in inputs]
    if external_data is None:
        external_data = sum(p.numel() * p.element_size() for p in module.parameters()) > 1.5e9
    with contextlib.ExitStack() as stack:
        draft = stack.enter_context(draft_of(path))
        small = sum(p.numel() for p in module.parameters()) <= LARGE
        process = None if trust else stack.enter_context(file_process(keep=small))  # loads PyTorch in the meantime
        stack.enter_context(experts.exportable(module))
        check = None if trust else begun(module, path, inputs, dynamic=dynamic, length=sequence if tokens else None)
        stack.enter_context(in_training_mode(module))
        stack.enter_context(written({} if check is None else check.functions))
        def work():
            with quietly(path):
                return write_graph(module, draft, inputs, shapes if dynamic else None, outputs, opset, dynamo, optimize, external_data)

        renamed = isolated(module, path, work)
        strip(draft)
        write_metadata(module, draft, tuple(inputs.values()), hub, renamed)
        if check is not None:
            found = check.finish(process, draft)
            if "apart" in found:
                settle(draft, found["detaches"], check.is_linear)
        costs = experts.cost(module)
        if costs:
            print(f"note: {path}: {len(costs)} layers of experts are exported so that every expert computes every position: {max(costs.values()):g} times the computation of the chosen experts")
    return path


def write_graph(module, path, inputs, shapes, outputs, opset, dynamo, optimize, external_data):
    """Writes the file with PyTorch's exporter. shapes: symbolic axes by input; None: all are fixed.
    Returns the module's names of initializers with other names."""
    arguments, names = tuple(inputs.values()), list(inputs)
    if not dynamo:
        axes = {name: {k: dim.__name__ for k, dim in shape.items()} for name, shape in zip(names, shapes)} if shapes else None
        with WrittenOut():
            torch.onnx.export(module, arguments, path, input_names=names, output_names=list(outputs), opset_version=min(opset, 17), dynamic_axes=axes,
                              dynamo=False, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)
        return renamed_by_torchscript(module, path)
    with torch.no_grad(), WrittenOut():  # with gradients, PyTorch traces fused attention with a trained mask into an operator that its exporter refuses
        program = torch.onnx.export(module, arguments, input_names=names, output_names=list(outputs), opset_version=opset, dynamo=True, optimize=optimize,
                                    dynamic_shapes=tuple(shapes) if shapes else None, verbose=False)
        renamed = make_names_unique(program.model)
        program.save(path, external_data=external_data)
        return renamed


@contextlib.contextmanager
def draft_of(path):
    """A file of the same name in a folder next to `path`. It replaces `path` when the block ends;
    after an error, `path` is unchanged."""
    path = os.path.abspath(os.fspath(path))
    if not os.path.isdir(os.path.dirname(path)):
        raise ZorseError(f"{path}: its folder does not exist")
    with tempfile.TemporaryDirectory(prefix=".zorse-export-", dir=os.path.dirname(path)) as folder:
        draft = os.path.join(folder, os.path.basename(path))
        yield draft
        for end in (".data", ""):  # the model file is last, because it refers to the data file
            if os.path.exists(draft + end):
                os.replace(draft + end, path + end)


@contextlib.contextmanager
def parameters_on_meta():
    """Inside, new modules have parameters without values. Buffers keep theirs: tables of positions
    and masks determine the graph."""
    register = torch.nn.Module.register_parameter
    made = torch.utils.weak.WeakIdKeyDictionary()  # a parameter of two modules (tied) stays one parameter

    def without_values(module, name, parameter):
        if parameter is not None and parameter.device.type != "meta":
            if parameter not in made:
                made[parameter] = torch.nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
            parameter = made[parameter]
        register(module, name, parameter)

    torch.nn.Module.register_parameter = without_values
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register


def export_without_weights(module, path, sequence=64, rows=2, vocabulary=256, opset=20):
    """The same for a module with parameters on PyTorch's meta device (parameters_on_meta): shapes without values, of any size.

    The file contains the offset of each parameter in `path`.data, which is not written: zorse-plan needs no weights, and zorse-compile has
    --weights=defer. Only adapters (lora.py) have values in it. Constants that determine the graph (tables of positions, masks) must not be on the meta device.
    """
    batch, length = torch.export.Dim("batch", min=1, max=65536), torch.export.Dim("sequence", min=2, max=1 << 20)
    ids = torch.zeros((rows, sequence), dtype=torch.int64)
    with draft_of(path) as draft, in_training_mode(module), experts.exportable(module):
        isolated(module, path, lambda: write_shapes(module, path, draft, ids, ({0: batch, 1: length},) * 2, opset))
        strip(draft)
        write_metadata(module, draft)
    return path


def write_shapes(module, path, draft, ids, shapes, opset):
    """Writes the file of a module without values to `draft`, with offsets in `path`.data."""
    import onnx_ir as ir

    with quietly(path), torch.no_grad(), WrittenOut():
        program = torch.onnx.export(module, (ids, ids.clone()), input_names=["input_ids", "labels"], output_names=["loss"], opset_version=opset, dynamo=True,
                                    optimize=False, dynamic_shapes=shapes, verbose=False)
    make_names_unique(program.model)
    offset, location = 0, os.path.basename(path) + ".data"
    adapters = {f"{at}.{name}": tensor for at, m in module.named_modules() if isinstance(m, lora.Adapted) for name, tensor in m.initial.items()}
    for value in program.model.graph.initializers.values():
        tensor = getattr(value.const_value, "raw", None)
        if not isinstance(tensor, torch.Tensor) or tensor.device.type != "meta":
            continue
        if value.name in adapters:
            value.const_value = ir.tensor(adapters[value.name].numpy(), name=value.name)
            continue
        size = tensor.numel() * tensor.element_size()
        value.const_value = ir.ExternalTensor(location, offset, size, value.const_value.dtype, shape=value.const_value.shape, name=value.name, base_dir="")
        offset += (size + 4095) // 4096 * 4096
    ir.save(program.model, draft)


def keep(properties, wanted):
    kept = [p for p in properties if wanted(p.key)]
    del properties[:]
    properties.extend(kept)


def strip(path):
    """Removes stack traces and documentation, which contain paths of the exporting machine. Keeps names of parameters, buffers and modules, and PyTorch's
    operation names (padding_idx, detach)."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    graphs = [model.graph] + list(model.functions)
    for graph in graphs:
        graph.doc_string = ""
        for node in graph.node:
            node.doc_string = ""
            keep(node.metadata_props, lambda key: key.endswith(("name_scopes", "fx_node")))
    keep(model.graph.metadata_props, lambda key: key.endswith("graph_signature"))
    keep(model.metadata_props, lambda key: key in (KEY, OLD_KEY))
    onnx.save(model, path)


def hugging_face(name, settings, weights=True, by_architecture=False):
    """A causal LM of transformers in f32, from a configuration class, a directory of the hub or a name in the local cache; nothing is downloaded.

    settings: override those of the configuration. weights=False: parameters are on the meta device. by_architecture: use the class that the
    configuration names, if it has a head, instead of a causal LM.
    """
    import transformers

    is_class = not os.path.isdir(name) and isinstance(getattr(transformers, name, None), type)
    try:
        config = getattr(transformers, name)(**settings) if is_class else transformers.AutoConfig.from_pretrained(name, local_files_only=True, **settings)
    except OSError as problem:
        raise ValueError(f"--hf {name}: expects a configuration class of transformers, a directory of the hub with config.json, or a name in the local cache ({str(problem).splitlines()[0]})") from None
    other = next((a for a in (getattr(config, "architectures", None) or [] if not is_class and not by_architecture else []) if "For" in a and not a.endswith("ForCausalLM")), None)
    if other:
        raise ValueError(f"--hf {name}: its class is {other}, expected a causal language model; export it in Python with its inputs: "
                         f"zorse.export(transformers.{other}.from_pretrained({name!r}), \"model.onnx\", inputs={{name: example, ...}})")
    config.dtype = torch.float32  # training is in f32 or the compiler's --precision, whatever the type of the files
    if not weights:
        with parameters_on_meta():
            return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    if is_class:
        return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    named = [getattr(transformers, a, None) for a in getattr(config, "architectures", None) or [] if by_architecture and not a.endswith("Model")]
    loader = named[0] if named and named[0] is not None else transformers.AutoModelForCausalLM
    model, info = loader.from_pretrained(name, config=config, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True, output_loading_info=True)
    missing = sorted(info["missing_keys"])
    if missing:  # transformers would initialize them with random numbers
        raise ValueError(f"--hf {name}: {len(missing)} parameters of the model are missing in its files: {', '.join(missing[:5])}; use a complete checkpoint, or --no-weights to export only shapes")
    return model


def main():
    parser = argparse.ArgumentParser(prog="zorse-torch-export", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hf", required=True, help="model: a transformers configuration class (GPT2Config, LlamaConfig, ...), a directory of the hub or a name in the local cache")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings of the configuration")
    parser.add_argument("--lora", metavar="r=8,alpha=16,targets=q_proj,v_proj", help="freeze the model and train LoRA adapters of rank r of the linear layers with these names")
    parser.add_argument("--sequence", type=int, default=64, help="positions of the exported example; with --fixed the sequence length")
    parser.add_argument("--rows", type=int, default=2, help="samples of the exported example; with --fixed the batch size")
    parser.add_argument("--opset", type=int, default=20, help="ONNX opset of the file")
    parser.add_argument("--fixed", action="store_true", help="fix batch size and sequence length")
    parser.add_argument("--optimize", action="store_true", help="let the exporter optimize (merges and renames parameters)")
    parser.add_argument("--trust-export", action="store_true", help="skip the comparison of a training step of the file with one of the module")
    parser.add_argument("--no-weights", action="store_true", help="export only shapes, for planning and compiling models of any size (zorse-compile --weights=defer)")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the weights of a configuration class")
    parser.add_argument("-o", "--output", required=True, help="output file")
    a = parser.parse_args()
    torch.manual_seed(a.seed)
    settings = {}
    for item in a.set:
        key, value = item.split("=", 1)
        try:
            settings[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            settings[key] = value
    try:
        write(a, settings)
    except (ValueError, OSError, ZorseError) as problem:
        sys.exit(f"error: {problem}")


def write(a, settings):
    """Loads the model selected on the command line."""
    adapters = lora.parse(a.lora) if a.lora else None
    model = hugging_face(a.hf, settings, weights=not a.no_weights)
    if adapters:
        lora.add_lora(model, **adapters)
    counts = f"{sum(p.numel() for p in model.parameters()):,} parameters" + (f", {sum(p.numel() for p in model.parameters() if p.requires_grad):,} of them in adapters" if a.lora else "")
    if a.no_weights:
        export_without_weights(WithLoss(model), a.output, sequence=a.sequence, rows=a.rows, vocabulary=model.config.vocab_size, opset=a.opset)
        print(f"{a.output}: {counts}, without weights; not compared with PyTorch, because a comparison needs values")
        return
    export(WithLoss(model), a.output, sequence=a.sequence, rows=a.rows, vocabulary=model.config.vocab_size, opset=a.opset, dynamic=not a.fixed,
           optimize=a.optimize, trust=a.trust_export)
    print(f"{a.output}: {counts}")


if __name__ == "__main__":
    main()
