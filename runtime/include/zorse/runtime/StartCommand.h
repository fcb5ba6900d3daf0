// Commands that start ranks on other nodes, such as ssh.
#pragma once

#include <string>
#include <vector>

namespace zorse::runtime::launching {

/// Returns the text as one word for a POSIX shell.
std::string shellQuoted(const std::string &text);

/// Fills a template of the user, one shell command. `{node}` is the node's name. `{command}` is the
/// rank's command as one word, which a shell on the node must interpret; it is appended if the
/// template does not have it.
///
///     ssh {node}  ->  ssh node1 'cd /work && exec env ZORSE_RANK=3 zorse-run ...'
///     srun -w {node} sh -c {command}
///                 ->  srun -w node1 sh -c 'cd /work && exec env ZORSE_RANK=3 zorse-run ...'
///
/// \param directory    working directory of the rank, for relative paths in its words
/// \param environment  "NAME=value"
std::string startCommandLine(const std::string &commandTemplate, const std::string &node,
                             const std::string &directory,
                             const std::vector<std::string> &environment,
                             const std::vector<std::string> &words);

} // namespace zorse::runtime::launching
