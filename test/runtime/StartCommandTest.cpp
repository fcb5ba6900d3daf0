#include "zorse/runtime/StartCommand.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

using namespace zorse::runtime::launching;

namespace {

/// What a shell prints that executes the line.
std::string printed(const std::string &line) {
  int ends[2] = {-1, -1};
  if (::pipe(ends) != 0)
    return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], 1);
    ::close(ends[0]);
    ::close(ends[1]);
    ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string out;
  char buffer[256];
  for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    out.append(buffer, size_t(got));
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return out;
}

std::vector<std::string> oddWords() {
  return {"plain", "two words",   "it's",   "\"quoted\"", "$HOME `id` \\ * ? ~",
          "",      "line\nbreak", "{node}", "{command}",  "a;b&c|d>e<f(g)",
          "ü"};
}

TEST(StartCommand, QuotedWordsAreThemselves) {
  for (const std::string &word : oddWords())
    EXPECT_EQ(printed("printf %s " + shellQuoted(word)), word);
}

TEST(StartCommand, TheCommandIsOneWordForAShellOnTheNode) {
  std::vector<std::string> words = {"sh", "-c", "printf '<%s>' \"$ODD\" \"$@\"", "sh"};
  std::string expected = "<x 'y' $z>";
  for (const std::string &word : oddWords()) {
    words.push_back(word);
    expected += "<" + word + ">";
  }
  const std::vector<std::string> environment = {"ODD=x 'y' $z"};
  // As ssh does: the other side's shell parses the last word.
  EXPECT_EQ(printed(startCommandLine("sh -c", "n", "/", environment, words)), expected);
  EXPECT_EQ(printed(startCommandLine("sh -c {command}", "n", "/", environment, words)), expected);
}

TEST(StartCommand, TheNodeIsAWord) {
  EXPECT_EQ(
      printed(startCommandLine("printf %s:%s:%s {node} {node}", "a node's", "/a b", {}, {"done"})),
      "a node's:a node's:cd '/a b' && exec env 'done'");
}

TEST(StartCommand, TheRankRunsInTheGivenDirectory) {
  EXPECT_EQ(printed(startCommandLine("sh -c", "n", "/usr/lib", {}, {"pwd"})), "/usr/lib\n");
}

} // namespace
