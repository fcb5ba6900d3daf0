// Options of benchmark programs: --name=value, each with a default.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

namespace zorse {

/// Sets `options` from the command line. Ends the program with a message on an unknown option.
inline void readOptions(int argc, char **argv, std::map<std::string, std::string> &options) {
  for (int i = 1; i < argc; ++i) {
    const char *equals = std::strchr(argv[i], '=');
    const std::string name =
        equals && std::strncmp(argv[i], "--", 2) == 0
            ? std::string(argv[i] + 2, static_cast<size_t>(equals - argv[i] - 2))
            : "";
    if (auto it = options.find(name); it != options.end()) {
      it->second = equals + 1;
      continue;
    }
    std::string known;
    for (const auto &[key, value] : options)
      known += " --" + key + "=" + value;
    std::fprintf(stderr, "unknown option '%s'; known are, with what they say if left out:%s\n",
                 argv[i], known.c_str());
    std::exit(2);
  }
}

} // namespace zorse
