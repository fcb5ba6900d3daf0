"""ptxas, cuobjdump and nvdisasm: from PTX to machine code to a listing. tools/ptxas.sh and tools/nvdisasm.sh fetch them."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))


class Missing(Exception):
    pass


def _fetched(name, script, variable):
    for path in (os.environ.get(variable), os.path.join(ROOT, ".cache", script, "bin", name)):
        if path and os.access(path, os.X_OK):
            return path
    found = shutil.which(name)
    if found:
        return found
    raise Missing(f"{name}: expected it in ${variable}, in .cache/{script} or on the PATH, found it nowhere; tools/{script}.sh fetches it")


def assembler():
    fetched = os.path.join(ROOT, ".cache", "ptxas", "nvidia", "cuda_nvcc", "bin", "ptxas")
    return fetched if os.access(fetched, os.X_OK) and not os.environ.get("PTXAS") else _fetched("ptxas", "ptxas", "PTXAS")


def disassembler():
    return _fetched("nvdisasm", "nvdisasm", "NVDISASM")


def skip_without_tools():
    """Exits with 77, "test cannot run here", if the assembler or disassembler is missing."""
    try:
        assembler(), disassembler()
    except Missing as missing:
        print(missing)
        sys.exit(77)


def _run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{os.path.basename(words[0])} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[:500]}")
    return done.stdout + done.stderr


def assemble(ptx, arch, cubin):
    """Machine code of a PTX file.
    -> {kernel: bytes of registers that did not fit}, stores and loads together"""
    said = _run(assembler(), "-v", "-arch=" + arch, ptx, "-o", cubin)
    spills = {}
    for kernel, stores, loads in re.findall(r"Compiling entry function '(\S+?)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads", said, re.S):
        spills[kernel] = int(stores) + int(loads)
    return spills


def resources(cubin):
    """{kernel: (registers of a thread, static shared bytes of a block, bytes of stack)}"""
    said = _run(_fetched("cuobjdump", "nvdisasm", "CUOBJDUMP"), "-res-usage", cubin)
    found = re.findall(r"Function (\S+?):\s*\n\s*REG:(\d+) STACK:(\d+) SHARED:(\d+)", said)
    return {name: (int(registers), int(shared), int(stack)) for name, registers, stack, shared in found}


def listing(cubin):
    return _run(disassembler(), "-c", cubin)


def cubin_of(path, arch):
    """(folder to keep, cubin, spills): assembles PTX first. The spills of a cubin are unknown and appear as its stack."""
    if path.endswith(".cubin"):
        return None, path, {}
    folder = tempfile.TemporaryDirectory()
    cubin = os.path.join(folder.name, "kernels.cubin")
    return folder, cubin, assemble(path, arch, cubin)
