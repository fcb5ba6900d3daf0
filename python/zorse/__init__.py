"""Zorse from Python: export a PyTorch module, plan and compile it for a cluster of unequal devices, train it, read the weights.

    import zorse
    run = zorse.train(module, tokens, max_steps=1000, global_batch_size=64, seq_length=512, cluster="cluster.yaml", lr=3e-4, on_step=print)

Every function calls the tool of its name and computes nothing itself: training from Python and from the command line give bitwise identical results.
Only zorse.export and training a module need PyTorch; everything else needs only numpy.
"""
from ._compile import Bundle, compile
from ._compiled_module import CompiledModule
from ._evaluate import Evaluation, evaluate
from ._metrics import Change, Sample, Step
from ._plan import Report, plan
from ._tools import ZorseError, ZorseWarning, tool
from ._train import Run, train
from ._weights import Weights, load_into

__all__ = ["Bundle", "Change", "CompiledModule", "Evaluation", "Report", "Run", "Sample", "Step", "Trainer", "TrainingArguments", "Weights", "ZorseError", "ZorseWarning", "compile", "evaluate", "export", "load_into", "plan", "tool", "train"]


def export(module, path, **arguments):
    """Writes a PyTorch module to an ONNX file in the form that Zorse supports best; see zorse.torch_export.export for the arguments. A transformers module with a
    head is written with its loss. Wrappers of torch.compile and data parallelism are removed."""
    from .torch_modules import export as write
    return write(module, path, **arguments)


def __getattr__(name):
    if name in ("Trainer", "TrainingArguments"):  # they need PyTorch
        from . import trainer
        return getattr(trainer, name)
    if name == "__version__":
        from ._version import version
        return version()
    raise AttributeError(f"module 'zorse' has no attribute '{name}'")
