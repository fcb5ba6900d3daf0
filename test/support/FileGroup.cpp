#include "FileGroup.h"

#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

using namespace zorse::test;
using namespace zorse::runtime;

namespace {

std::optional<std::string> readFile(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  if (!in)
    return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// Writes a file atomically.
void writeFile(const std::string &path, const std::string &text, uint32_t rank) {
  std::string beside = path + ".new" + std::to_string(rank);
  std::ofstream(beside, std::ios::binary) << text;
  std::rename(beside.c_str(), path.c_str());
}

} // namespace

FileGroup::FileGroup(std::string directory, uint32_t rank, uint32_t size, uint64_t generation)
    : directory_(std::move(directory)), rank_(rank), size_(size), generation_(generation) {}

Result<std::vector<std::string>> FileGroup::allGatherBytes(const std::string &name,
                                                           const std::string &mine) {
  std::string base = directory_ + "/" + std::to_string(generation_) + "." + name + ".";
  writeFile(base + std::to_string(rank_), mine, rank_);
  std::vector<std::string> all;
  while (all.size() < size_) {
    if (std::optional<std::string> why = readFile(directory_ + "/failed"))
      return userError(*why);
    if (std::optional<std::string> theirs = readFile(base + std::to_string(all.size())))
      all.push_back(*theirs);
    else
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return all;
}

void FileGroup::fail(const std::string &why) { writeFile(directory_ + "/failed", why, rank_); }
