"""Makes the files in test/unit/import/exports, which the importer's tests read.

Needs PyTorch (tools/python-env.sh). Run it only to change the files:

    python test/unit/import/make_exports.py

The module has a frozen and a tied parameter, a buffer, a scalar, exp(g), a padding row and a detach. It is exported in
five forms, each as PyTorch writes it (NAME.onnx) and with the module's facts (NAME-facts.onnx).
"""
import os
import shutil
import sys
import warnings

warnings.filterwarnings("ignore")
import torch
import torch.nn as nn
import torch.nn.functional as F

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "..", "..", "models"))
from export import strip
from zorse.metadata import write_metadata


class Small(nn.Module):
    def __init__(self, detach):
        super().__init__()
        self.detach = detach
        self.embedding = nn.Embedding(11, 4, padding_idx=0)
        self.linear = nn.Linear(4, 4)
        self.linear.bias.requires_grad_(False)
        self.scale, self.g = nn.Parameter(torch.tensor(0.7)), nn.Parameter(torch.randn(4))
        self.register_buffer("shift", torch.randn(4))
        self.head = nn.Linear(4, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, input_ids, labels):
        x = self.embedding(input_ids)
        x = x + torch.tanh(self.linear(x)) * self.scale + self.shift
        x = x * torch.exp(self.g)
        if self.detach:
            x = x + x.detach() * x
        return F.cross_entropy(self.head(x).reshape(-1, 11), labels.reshape(-1))


FORMS = {"default": dict(dynamo=True), "unoptimized": dict(dynamo=True, optimize=False), "opset23": dict(dynamo=True, optimize=False, opset_version=23),
         "torchscript": dict(dynamo=False, opset_version=17, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False), "torchscript-eval": dict(dynamo=False, opset_version=17)}


def main():
    folder = os.path.join(here, "exports")
    os.makedirs(folder, exist_ok=True)
    ids = torch.randint(0, 11, (2, 6), generator=torch.Generator().manual_seed(0))
    arguments = (ids, ids.clone())
    for detach in (False, True):
        for name, options in FORMS.items():
            torch.manual_seed(0)
            module = Small(detach)
            path = os.path.join(folder, ("detach-" if detach else "") + name + ".onnx")
            if options["dynamo"]:
                options = dict(options, external_data=False, verbose=False)
            torch.onnx.export(module, arguments, path, input_names=["input_ids", "labels"], output_names=["loss"], **options)
            strip(path)
            written = path.replace(".onnx", "-facts.onnx")
            shutil.copy(path, written)
            write_metadata(module, written, arguments)


if __name__ == "__main__":
    main()
