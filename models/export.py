"""The exporter of a clone without installation: python models/export.py --hf GPT2Config -o gpt2.onnx is python -m zorse.torch_export. Scripts with this
folder on their path use `from export import export`.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
from zorse.torch_export import WithLoss, export, export_without_weights, main, parameters_on_meta, strip

__all__ = ["WithLoss", "export", "export_without_weights", "main", "parameters_on_meta", "strip"]

if __name__ == "__main__":
    main()
