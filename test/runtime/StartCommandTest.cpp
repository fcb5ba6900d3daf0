#include "launch/StartCommand.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

using namespace zorse::runtime::launching;

namespace {

/// What a shell prints that executes the line.
std::string printed(const std::string &line) {
  std::string out;
  FILE *pipe = ::popen(line.c_str(), "r");
  for (int c = 0; pipe && (c = std::fgetc(pipe)) != EOF;)
    out += char(c);
  if (pipe)
    ::pclose(pipe);
  return out;
}

const std::vector<std::string> kOddWords = {
    "plain",  "two words", "it's",           "\"quoted\"", "$HOME `id` \\ * ? ~", "", "line\nbreak",
    "{node}", "{command}", "a;b&c|d>e<f(g)", "ü"};

TEST(StartCommand, QuotedWordsAreThemselves) {
  for (const std::string &word : kOddWords)
    EXPECT_EQ(printed("printf %s " + shellQuoted(word)), word);
}

TEST(StartCommand, TheCommandIsOneWordForAShellOnTheNode) {
  std::vector<std::string> words = {"sh", "-c", "printf '<%s>' \"$ODD\" \"$@\"", "sh"};
  std::string expected = "<x 'y' $z>";
  for (const std::string &word : kOddWords) {
    words.push_back(word);
    expected += "<" + word + ">";
  }
  const std::vector<std::string> environment = {"ODD=x 'y' $z"};
  // As ssh does: the other side's shell parses the last word.
  EXPECT_EQ(printed(startCommandLine("sh -c", "n", environment, words)), expected);
  EXPECT_EQ(printed(startCommandLine("sh -c {command}", "n", environment, words)), expected);
}

TEST(StartCommand, TheNodeIsAWord) {
  EXPECT_EQ(printed(startCommandLine("printf %s:%s:%s {node} {node}", "a node's", {}, {"done"})),
            "a node's:a node's:exec env 'done'");
}

} // namespace
