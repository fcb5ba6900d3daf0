"""tools/ctest.sh names tests that did not run, the reason, and the command that runs them. Uses an artificial build
folder with tests that are skipped completely, in part, or by GoogleTest, are disabled, or fail.
"""
import os
import subprocess
import tempfile

import harness as z

PROJECT = r"""cmake_minimum_required(VERSION 3.22)
project(Skips LANGUAGES NONE)
enable_testing()
add_test(NAME passes COMMAND echo fine)
add_test(NAME e2e-whole COMMAND sh -c "echo 'skipped: torchrun is not installed (tools/python-env.sh)'; exit 77")
add_test(NAME silent COMMAND sh -c "exit 77")
add_test(NAME part COMMAND sh -c "echo fine; echo 'skipped: full disk: needs root'; echo fine")
add_test(NAME unit COMMAND printf "[ RUN      ] A.B\n/x/F.cpp:239: Skipped\nno IPv6 here\n\n[  SKIPPED ] A.B (0 ms)\n")
add_test(NAME off COMMAND echo)
set_tests_properties(e2e-whole silent PROPERTIES SKIP_RETURN_CODE 77)
set_tests_properties(off PROPERTIES DISABLED TRUE)
if(FAILS)
  add_test(NAME fails COMMAND sh -c "exit 3")
endif()
"""


def main():
    results = []

    def expect(what, good, said):
        results.append(bool(good))
        print(f"{'ok  ' if good else 'FAIL'} {what}" + ("" if good else ":\n" + said), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "CMakeLists.txt"), "w") as f:
            f.write(PROJECT)
        build = os.path.join(folder, "build")
        run = os.path.join(z.ROOT, "tools", "ctest.sh")

        def tests(*words, fails="OFF"):
            subprocess.run(["cmake", "-G", "Ninja", f"-DFAILS={fails}", "-S", folder, "-B", build], check=True, capture_output=True)
            done = subprocess.run([run, build, *words], capture_output=True, text=True)
            return done.returncode, done.stdout + done.stderr

        code, said = tests()
        expect("skipped tests are no failure", code == 0, said)
        for line in ("e2e-whole: torchrun is not installed (tools/python-env.sh)", "silent: did not run and gives no reason", "part: full disk: needs root", "unit: A.B: no IPv6 here",
                     "off: switched off in this build"):
            expect(line, f"\n  {line}\n" in said, said)
        expect("the command that runs them is the last line", said.splitlines()[-1].endswith(f"ctest --test-dir {build} --output-on-failure -R '^(e2e-whole|silent|part|unit|off)$'"), said)
        code, said = tests(fails="ON")
        expect("a failure stays one", code != 0 and "Not tested here:" in said, said)
        code, said = tests("-R", "passes")
        expect("nothing was skipped", code == 0 and said.splitlines()[-1] == "Nothing was skipped.", said)
    z.finish(results)


if __name__ == "__main__":
    main()
