"""Version of the package: of the wheel, or of the source tree of this file."""
import importlib.metadata
import os
import re


def version() -> str:
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "CMakeLists.txt")
    if os.path.isfile(source):
        with open(source, encoding="utf-8") as file:
            found = re.search(r"project\(Zorse VERSION ([0-9.]+)", file.read())
        if found:
            return found.group(1)
    return importlib.metadata.version("zorse")
