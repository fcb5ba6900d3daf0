// Tests the sources of a job's secret.
#include "ControlRig.h"
#include "TemporaryDirectory.h"

#include <cstdlib>
#include <optional>
#include <thread>
#include <vector>

#include <sys/stat.h>

using namespace zorse::runtime;
using namespace zorse::runtime::test;

namespace {

class Variable {
public:
  Variable(const char *name, const char *value) : name_(name) {
    if (const char *old = std::getenv(name))
      old_ = old;
    value ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  ~Variable() { old_ ? ::setenv(name_, old_->c_str(), 1) : ::unsetenv(name_); }

private:
  const char *name_;
  std::optional<std::string> old_;
};

TEST(ControlTrust, TheSecretsSources) {
  TemporaryDirectory directory;
  Variable home("HOME", directory.path("home").c_str()), noSecret("ZORSE_SECRET", nullptr),
      noFile("ZORSE_SECRET_FILE", nullptr);
  ::mkdir(directory.path("home").c_str(), 0755);

  Result<std::string> made = jobSecret("");
  ASSERT_FALSE(made.failed()) << made.message();
  EXPECT_EQ(made->size(), 64u);
  struct stat info = {};
  ASSERT_EQ(::stat(directory.path("home/.config/zorse/secret").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  EXPECT_EQ(*jobSecret(""), *made);

  std::string path = directory.write("file", "0123456789abcdef\n");
  ::chmod(path.c_str(), 0600);
  EXPECT_EQ(*jobSecret(path), "0123456789abcdef");
  {
    Variable file("ZORSE_SECRET_FILE", path.c_str());
    EXPECT_EQ(*jobSecret(""), "0123456789abcdef");
    Variable secret("ZORSE_SECRET", "from the environment");
    EXPECT_EQ(*jobSecret(path), "from the environment");
    EXPECT_EQ(std::getenv("ZORSE_SECRET"), nullptr)
        << "it leaves the environment, which kernels and children could read";
    Variable shortOne("ZORSE_SECRET", "short");
    EXPECT_TRUE(contains(jobSecret(path).message(), "at least 16"));
  }
  ::chmod(path.c_str(), 0640);
  EXPECT_TRUE(contains(jobSecret(path).message(), "chmod 600"));
  EXPECT_TRUE(contains(jobSecret(directory.path("nowhere")).message(), "No such file"));
  EXPECT_TRUE(jobSecret(directory.path("")).failed());
  std::string brief = directory.write("brief", "abc");
  ::chmod(brief.c_str(), 0600);
  EXPECT_TRUE(contains(jobSecret(brief).message(), "at least 16"));
  std::string huge = directory.write("huge", std::string(1 << 20, 'x'));
  ::chmod(huge.c_str(), 0600);
  EXPECT_TRUE(contains(jobSecret(huge).message(), "more than"));
}

TEST(ControlTrust, ProcessesThatMakeTheSecretAtOnceGetTheSame) {
  TemporaryDirectory directory;
  Variable home("HOME", directory.path("").c_str()), noSecret("ZORSE_SECRET", nullptr),
      noFile("ZORSE_SECRET_FILE", nullptr);
  std::vector<std::string> secrets(8);
  std::vector<std::thread> threads;
  for (std::string &secret : secrets)
    threads.emplace_back([&secret] {
      Result<std::string> got = jobSecret("");
      secret = got.failed() ? got.message() : *got;
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const std::string &secret : secrets)
    EXPECT_EQ(secret, secrets[0]);
  EXPECT_EQ(secrets[0].size(), 64u);
}

} // namespace
