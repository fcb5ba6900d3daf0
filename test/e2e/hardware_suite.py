"""The suite that is carried to machines with GPUs (test/hardware), made for the emulator and run on it: that it works where there is a GPU at all.

    hardware_suite.py [--all]     --all: every bundle of it, else GPT in f32
"""
import os
import subprocess
import sys
import tempfile

import cuda
import harness as z

with tempfile.TemporaryDirectory() as folder:
    suite = os.path.join(folder, "suite")
    form = [] if "--all" in sys.argv else ["--quick"]
    subprocess.run([sys.executable, os.path.join(z.ROOT, "test", "hardware", "make_suite.py"), suite, "--arch", "emu", *form], check=True)
    sys.exit(subprocess.run([os.path.join(suite, "check.sh")], env={**os.environ, "LD_LIBRARY_PATH": cuda.STANDIN, "ZORSE_EMULATOR_DEVICES": "2", "PYTHON": sys.executable}).returncode)
