// Linked into every program of a sanitizer's build, so that tests, lit and people get the same settings without environment variables.
// What is switched off or suppressed here is about libraries that are not instrumented; of this project nothing is suppressed.

extern "C" {

// Containers cross the border to libMLIR and libLLVM: they fill vectors without marking them, so container overflows would be reported falsely.
// LLVM's bump allocators likewise: compiled here they poison what they have not given out, compiled there they give it out without unpoisoning.
const char *__asan_default_options() {
  return "detect_container_overflow=0:allow_user_poisoning=0:detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=0";
}

const char *__ubsan_default_options() { return "print_stacktrace=1"; }

// Registries and caches that these libraries keep until the process ends.
const char *__lsan_default_suppressions() { return "leak:libLLVM\nleak:libMLIR\nleak:libprotobuf\nleak:libpmix\n"; }

// Their function-local statics are guarded by loads that only instrumented code shows: copying one would be reported as a race with the thread that
// made it.
const char *__tsan_default_suppressions() { return "race:libMLIR.so\nrace:libLLVM.so\n"; }

const char *__tsan_default_options() { return "halt_on_error=1:second_deadlock_stack=1"; }
}
