// Looks up functions of a library that is loaded at run time.
#pragma once

#include <string>

#include <dlfcn.h>

namespace zorse::runtime::cuda {

/// Sets `function` to the library's function with that name, or adds the name to `missing`.
template <typename Function>
void findFunction(void *library, const char *name, Function *&function, std::string &missing) {
  if (void *found = ::dlsym(library, name))
    function = reinterpret_cast<Function *>(found);
  else
    missing += (missing.empty() ? "" : ", ") + std::string(name);
}

} // namespace zorse::runtime::cuda
