"""Runs the comparison of exports (zorse._file_process) in a fork of this process, which has already loaded PyTorch: for
tests that export hundreds of models.
"""
import os
import signal
import sys
import tempfile

from zorse import _file_process, _file_step


class Forked(_file_process.FileProcess):
    """The process that evaluates files, as a fork of this process, which has already loaded PyTorch."""

    def __init__(self):
        self._said, ask, answer = tempfile.TemporaryFile(), os.pipe(), os.pipe()
        child = os.fork()
        if not child:
            try:
                for old, new in ((ask[0], 0), (answer[1], 1), (self._said.fileno(), 2)):
                    os.dup2(old, new)
                for end in (*ask, *answer):
                    os.close(end)
                sys.stdin, sys.argv = os.fdopen(0), ["", "1"]
                _file_step.main()
            finally:
                os._exit(0)
        os.close(ask[0])
        os.close(answer[1])
        self._owner, self._timer, self._asked = os.getpid(), None, False
        self._process = Child(child, os.fdopen(ask[1], "w"), os.fdopen(answer[0]))


class Child:
    """The part of the subprocess.Popen interface that FileProcess uses."""

    def __init__(self, pid, stdin, stdout):
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.code = None

    def kill(self):
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)

    def poll(self):
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code

    def wait(self):
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code
