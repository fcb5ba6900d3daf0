// Recognizes pickles by their operations (described in Lib/pickletools.py of CPython).
#include "Formats.h"

#include <algorithm>
#include <vector>

using namespace zorse::runtime;

namespace {

constexpr size_t kWalked = 1 << 16; ///< bytes that are parsed

enum class Stack : char {
  Push,    ///< pushes one value
  Replace, ///< `needed` values become one
  Keep,    ///< requires `needed` values
  Drop,    ///< pops one value
  Mark,    ///< sets a mark
  ToMark,  ///< replaces all values after the last mark by one
  Into,    ///< moves all values after the last mark into the value below
  PopMark, ///< pops all values after the last mark
  Stop
};

struct Operation {
  unsigned char code;
  Stack stack;
  int needed;
  int bytes; ///< bytes of the argument; -1: a line, -2: two lines; with `counted`: bytes of the
             ///< length field that precedes the argument
  bool counted = false;
};

const Operation kOperations[] = {
    {'(', Stack::Mark, 0, 0},        {'.', Stack::Stop, 1, 0},
    {'0', Stack::Drop, 1, 0},        {'1', Stack::PopMark, 0, 0},
    {'2', Stack::Push, 1, 0},        {'F', Stack::Push, 0, -1},
    {'I', Stack::Push, 0, -1},       {'J', Stack::Push, 0, 4},
    {'K', Stack::Push, 0, 1},        {'L', Stack::Push, 0, -1},
    {'M', Stack::Push, 0, 2},        {'N', Stack::Push, 0, 0},
    {'P', Stack::Push, 0, -1},       {'Q', Stack::Keep, 1, 0},
    {'R', Stack::Replace, 2, 0},     {'S', Stack::Push, 0, -1},
    {'T', Stack::Push, 0, 4, true},  {'U', Stack::Push, 0, 1, true},
    {'V', Stack::Push, 0, -1},       {'X', Stack::Push, 0, 4, true},
    {'a', Stack::Replace, 2, 0},     {'b', Stack::Replace, 2, 0},
    {'c', Stack::Push, 0, -2},       {'d', Stack::ToMark, 0, 0},
    {'}', Stack::Push, 0, 0},        {'e', Stack::Into, 0, 0},
    {'g', Stack::Push, 0, -1},       {'h', Stack::Push, 0, 1},
    {'i', Stack::ToMark, 0, -2},     {'j', Stack::Push, 0, 4},
    {'l', Stack::ToMark, 0, 0},      {']', Stack::Push, 0, 0},
    {'o', Stack::ToMark, 0, 0},      {'p', Stack::Keep, 1, -1},
    {'q', Stack::Keep, 1, 1},        {'r', Stack::Keep, 1, 4},
    {'s', Stack::Replace, 3, 0},     {'t', Stack::ToMark, 0, 0},
    {')', Stack::Push, 0, 0},        {'u', Stack::Into, 0, 0},
    {'G', Stack::Push, 0, 8},        {'B', Stack::Push, 0, 4, true},
    {'C', Stack::Push, 0, 1, true},  {0x80, Stack::Keep, 0, 1},
    {0x81, Stack::Replace, 2, 0},    {0x82, Stack::Push, 0, 1},
    {0x83, Stack::Push, 0, 2},       {0x84, Stack::Push, 0, 4},
    {0x85, Stack::Replace, 1, 0},    {0x86, Stack::Replace, 2, 0},
    {0x87, Stack::Replace, 3, 0},    {0x88, Stack::Push, 0, 0},
    {0x89, Stack::Push, 0, 0},       {0x8a, Stack::Push, 0, 1, true},
    {0x8b, Stack::Push, 0, 4, true}, {0x8c, Stack::Push, 0, 1, true},
    {0x8d, Stack::Push, 0, 8, true}, {0x8e, Stack::Push, 0, 8, true},
    {0x8f, Stack::Push, 0, 0},       {0x90, Stack::Into, 0, 0},
    {0x91, Stack::ToMark, 0, 0},     {0x92, Stack::Replace, 3, 0},
    {0x93, Stack::Replace, 2, 0},    {0x94, Stack::Keep, 1, 0},
    {0x95, Stack::Keep, 0, 8},       {0x96, Stack::Push, 0, 8, true},
    {0x97, Stack::Push, 0, 0},       {0x98, Stack::Keep, 1, 0},
};

class Walk {
public:
  Walk(const std::string &head, uint64_t size) : head_(head), size_(size) {}

  /// Whether the operations are valid up to the end of the pickle, or up to the end of the bytes
  /// read.
  bool good(bool endsWithStop) {
    for (; at_ < head_.size(); ++operations_) {
      const auto code = (unsigned char)head_[at_++];
      auto found = std::find_if(std::begin(kOperations), std::end(kOperations),
                                [&](const Operation &o) { return o.code == code; });
      if (found == std::end(kOperations) || !argument(*found) || !apply(*found))
        return false;
      if (found->stack == Stack::Stop) // the end, or the start of another pickle, as old versions
                                       // of torch.save wrote them
        return operations_ > 0 &&
               (at_ >= size_ || (at_ + 1 < head_.size() && (unsigned char)head_[at_] == 0x80 &&
                                 head_[at_ + 1] <= 5));
    }
    return endsWithStop && operations_ > 1 && size_ > head_.size();
  }

private:
  bool argument(const Operation &operation) {
    if (operation.bytes < 0) {
      for (int line = 0; line > operation.bytes; --line) {
        const size_t end = head_.find('\n', at_);
        if (end == std::string::npos ||
            (line == 0 && !plausible(operation.code, head_.substr(at_, end - at_))))
          return false;
        at_ = end + 1;
      }
      return true;
    }
    uint64_t bytes = uint64_t(operation.bytes);
    if (operation.counted) {
      uint64_t length = 0;
      for (uint64_t i = 0; i < bytes && at_ + i < head_.size(); ++i)
        length |= uint64_t((unsigned char)head_[at_ + i]) << (8 * i);
      if (length > size_)
        return false;
      bytes += length;
    }
    at_ += bytes;
    return at_ <= size_;
  }

  /// Whether a line can be the argument of the operation. Rejects the words of a text.
  static bool plausible(unsigned char code, const std::string &line) {
    const char *allowed = code == 'I' || code == 'L' || code == 'g' || code == 'p' ? "-0123456789L"
                          : code == 'F' ? "-+.0123456789einfa"
                          : code == 'c' || code == 'i'
                              ? "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_."
                              : nullptr;
    if (code == 'S')
      return line.size() >= 2 && (line[0] == '\'' || line[0] == '"') && line.back() == line[0];
    return !allowed || (!line.empty() && line.find_first_not_of(allowed) == std::string::npos);
  }

  size_t behindMark() const { return depth_ - marks_.back(); }

  bool apply(const Operation &operation) {
    const size_t floor = marks_.empty() ? 0 : marks_.back(), needed = size_t(operation.needed);
    if (depth_ - floor < needed)
      return false;
    switch (operation.stack) {
    case Stack::Push:
      ++depth_;
      return true;
    case Stack::Replace:
      depth_ -= needed - 1;
      return true;
    case Stack::Keep:
      return true;
    case Stack::Drop:
      --depth_;
      return true;
    case Stack::Mark:
      marks_.push_back(depth_);
      return true;
    case Stack::ToMark:
    case Stack::Into:
    case Stack::PopMark:
      if (marks_.empty() || (operation.stack == Stack::Into && floor == 0))
        return false;
      depth_ = floor + (operation.stack == Stack::ToMark);
      marks_.pop_back();
      return true;
    case Stack::Stop:
      return depth_ == 1 && marks_.empty();
    }
    return false;
  }

  const std::string &head_;
  const uint64_t size_; ///< bytes of the file
  uint64_t at_ = 0;
  size_t depth_ = 0, operations_ = 0;
  std::vector<size_t> marks_; ///< stack depths
};

} // namespace

Result<bool> zorse::runtime::isPickle(const DataFile &file) {
  std::string head(size_t(std::min<uint64_t>(file.size(), kWalked)), '\0');
  char last = 0;
  if (Status status = file.read(0, head.data(), head.size()); status.failed())
    return status.error();
  if (file.size() > 0)
    if (Status status = file.read(file.size() - 1, &last, 1); status.failed())
      return status.error();
  return Walk(head, file.size()).good(last == '.');
}
