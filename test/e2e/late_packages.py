"""A build detects packages that were installed or removed after its build folder was configured. Tests
cmake/ZorsePackages.cmake in a separate project, with an artificial header and package list.
"""
import os
import shutil
import subprocess
import tempfile
import time

import harness as z

PROJECT = """cmake_minimum_required(VERSION 3.22)
project(Late LANGUAGES NONE)
include({packages})
find_path(LATE_HEADER late.h PATHS {installed})
find_program(LATE_PROGRAM late PATHS {installed})
find_package(Late CONFIG QUIET PATHS {installed})
file(WRITE ${{CMAKE_BINARY_DIR}}/found "${{LATE_HEADER}};${{LATE_PROGRAM}};${{Late_FOUND}}")
add_custom_target(nothing ALL)
"""


def main():
    results = []
    with tempfile.TemporaryDirectory() as folder:
        source, build, installed, packages = (os.path.join(folder, n) for n in ("source", "build", "installed", "packages"))
        os.mkdir(source)
        with open(os.path.join(source, "CMakeLists.txt"), "w") as f:
            f.write(PROJECT.format(packages=os.path.join(z.ROOT, "cmake", "ZorsePackages.cmake"), installed=installed))

        def change(text):
            time.sleep(0.05)  # clocks of file systems may be coarse
            with open(packages, "w") as f:
                f.write(text)

        def found(first=False):
            words = ["cmake", "-G", "Ninja", f"-DZORSE_PACKAGE_LIST={packages}", "-S", source, "-B", build] if first else ["cmake", "--build", build]
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode != 0:
                raise z.Failure((done.stdout + done.stderr)[-2000:])
            with open(os.path.join(build, "found")) as f:
                return f.read()

        def expect(what, seen, good):
            results.append(good)
            print(f"{'ok  ' if good else 'FAIL'} {what}: {seen}", flush=True)

        change("none")
        seen = found(first=True)
        expect("nothing is installed", seen, seen == "LATE_HEADER-NOTFOUND;LATE_PROGRAM-NOTFOUND;0")
        os.mkdir(installed)
        for name, text in (("late.h", ""), ("late", "#!/bin/sh\n"), ("LateConfig.cmake", "")):
            with open(os.path.join(installed, name), "w") as f:
                f.write(text)
        os.chmod(os.path.join(installed, "late"), 0o755)
        change("late is installed")
        seen = found()
        expect("installed later", seen, seen == f"{installed};{installed}/late;1")
        shutil.rmtree(installed)
        change("late is installed no more")
        seen = found()
        expect("removed later", seen, seen == "LATE_HEADER-NOTFOUND;LATE_PROGRAM-NOTFOUND;0")
        os.utime(packages, (time.time() + 3600,) * 2)
        shutil.rmtree(build)
        found(first=True)
        expect("a list of packages of the future, after a clock was set back", "builds", found() == seen)
        with open(os.path.join(z.ROOT, "CMakeLists.txt")) as f:
            expect("the project does so before it looks for anything", "include(ZorsePackages)", 0 < (text := f.read()).find("include(ZorsePackages)") < min(text.find(w) for w in ("include(ZorseToolchain)", "find_package(")))
    z.finish(results)


if __name__ == "__main__":
    main()
