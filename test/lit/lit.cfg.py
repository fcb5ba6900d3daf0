# Configuration of `lit` for the tests with RUN lines.
import os

import lit.formats

config.name = "zorse"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["inputs"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.zorse_binary_dir, "test", "lit")
config.environment["PATH"] = os.pathsep.join([os.path.join(config.zorse_binary_dir, "bin"), config.llvm_tools_dir, config.environment.get("PATH", os.environ["PATH"])])
for name in ("FileCheck", "not"):
    config.substitutions.append((r"(?<![\w/-])%s(?![\w-])" % name, os.path.join(config.llvm_tools_dir, name)))
config.substitutions.append(("%source", config.zorse_source_dir))
