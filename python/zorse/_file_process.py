"""The process that evaluates files (_file_step.py).

Loading PyTorch takes longer than comparing a small model. The process therefore starts to load it before the file is written, and waits some time for the next export.
"""
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading

import torch

SECONDS = 60.0  # time that a process waits for another export
_LOAD = "import json,sys; sys.path[:] = json.loads(sys.argv[1]); from zorse._file_step import main; main()"
_waiting = []


class FileProcess:
    """A process that evaluates files. It ends on `close`, or when this process ends."""

    def __init__(self):
        self._said = tempfile.TemporaryFile()
        words = [sys.executable, "-c", _LOAD, json.dumps(sys.path), str(torch.get_num_threads())]
        passive = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}  # its threads must not spin while this process writes the file
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True, env=passive)
        self._owner, self._timer, self._asked = os.getpid(), None, False

    def ask(self, **request):
        """Returns the answer, or the reason why the process failed."""
        self._asked = True
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if line:
            self._asked = False
            return json.loads(line)
        code = self._process.wait()
        self._said.seek(0)
        lines = self._said.read().decode("utf-8", "replace").strip().splitlines()
        return {"failed": f"its process ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}" + (f": {lines[-1][:200]}" if lines else "")}

    def wait_for_another(self):
        """Makes the process wait for `taken`, and ends it after SECONDS. A process that owes an
        answer, or has failed, is ended immediately."""
        if self._asked or self._process.poll() is not None:
            return self.close()
        self._process.stdin.write('{"task": "forget"}\n')
        self._timer = threading.Timer(SECONDS, self._expire)
        self._timer.daemon = True
        _waiting.append(self)
        self._timer.start()

    def taken(self):
        """Whether a waiting process can be used: it still runs, and is owned by this process, not
        by one that this process was forked from."""
        if self._owner != os.getpid():
            return False
        self._timer.cancel()
        if self._process.poll() is None:
            return True
        self.close()
        return False

    def _expire(self):
        with contextlib.suppress(ValueError):  # taken at this moment
            _waiting.remove(self)
            self.close()

    def close(self):
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._said.close()


@contextlib.contextmanager
def file_process(keep=True):
    """Returns a process that evaluates files: a waiting one, or a new one. keep: whether it waits
    for another export afterwards and keeps its memory."""
    process = None
    while process is None and _waiting:
        candidate = _waiting.pop()
        process = candidate if candidate.taken() else None
    process = process or FileProcess()
    try:
        yield process
    finally:
        if keep:
            process.wait_for_another()
        else:
            process.close()
