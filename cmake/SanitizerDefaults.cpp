// Linked into every executable of a sanitizer build, so that tests, lit and users get the same
// settings without environment variables. The disabled checks and suppressions concern libraries
// that are not instrumented; nothing in this project is suppressed.

extern "C" {

// libMLIR and libLLVM fill vectors without annotating them, so container overflows would be false
// positives. LLVM's bump allocators poison memory if they are compiled here, but the code in the
// libraries allocates it without unpoisoning.
const char *__asan_default_options() {
  return "detect_container_overflow=0:allow_user_poisoning=0:detect_stack_use_after_return=1:"
         "strict_string_checks=1:allocator_may_return_null=0";
}

const char *__ubsan_default_options() { return "print_stacktrace=1"; }

// Registries and caches that these libraries keep until exit.
const char *__lsan_default_suppressions() {
  return "leak:libLLVM\nleak:libMLIR\nleak:libprotobuf\nleak:libpmix\n";
}

// Function-local statics of these libraries are guarded by loads that only instrumented code shows.
// Copying such a static would be reported as a race with the thread that created it.
const char *__tsan_default_suppressions() { return "race:libMLIR.so\nrace:libLLVM.so\n"; }

const char *__tsan_default_options() { return "halt_on_error=1:second_deadlock_stack=1"; }
}
