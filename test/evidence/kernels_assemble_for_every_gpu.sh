#!/usr/bin/env bash
# Claim: GPT-2 124M (bf16, 1,024 positions) and every model in models/small compile for P100, V100, T4, A100, RTX 3090, RTX 4090, RTX 5090, H100, H200 and B200 in one bundle; NVIDIA's
#   assembler takes all of it, nothing is unresolved, and no kernel spills a register.
# Topic: GPUs
# Quick: two small models, four architectures
#
# Fetches the assembler into .cache/ptxas; the long form makes GPT-2's ONNX file with PyTorch in .venv.
set -euo pipefail
cd "$(dirname "$0")/../.."
tools/ptxas.sh >/dev/null || exit 77
if [ "${1:-}" = --quick ]; then exec /usr/bin/python3 test/e2e/assemble.py --quick; fi
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" models/make_benchmark.py gpt2-124m "$folder/gpt2.onnx" >/dev/null
/usr/bin/python3 test/e2e/assemble.py --gpt2 "$folder/gpt2.onnx"
