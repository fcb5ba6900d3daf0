// What the suite compiles: a function per kernel class, element type and shape, as text.
//
// Values of a narrow type are read and written in two bytes and computed in f32, as zorse-narrow-storage leaves them; parameters, statistics and
// gradients of parameters are f32 (docs/precision.md).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace zorse::conformance {

/// Sizes: the awkward ones of a fixed list first, then what a seed gives.
class Sizes {
public:
  /// \param index  of the shape in its class
  /// \param large  about so many elements in a value instead, for which a kernel's time is that of its bytes; 0: the list
  Sizes(int index, uint64_t seed, int64_t large = 0) : index(index), large(large), random(seed * 1000003 + uint64_t(index)) {}

  /// Columns of a row: the list, then up to `most`.
  int64_t columns(int64_t most = 2500);
  /// Rows of the sample axis, at least one as calls have (KernelAbi.h); few where `columns` is large.
  int64_t rows(int64_t columns);
  /// A small size: 1, 2, 3, 5, ...
  int64_t lead();
  int64_t below(int64_t end) { return int64_t(random() % uint64_t(end)); }
  int64_t oneOf(std::initializer_list<int64_t> list) { return *(list.begin() + below(int64_t(list.size()))); }
  /// Entry `index` of the list; beyond its end: any.
  int64_t inTurn(std::initializer_list<int64_t> list) { return index < int(list.size()) ? *(list.begin() + index) : oneOf(list); }

  const int index;
  const int64_t large;
  std::mt19937_64 random;
};

/// Writes a function. In lines, `$A` is the tensor type of shape A in f32 and `#A` the same in the type of storage.
class Text {
public:
  explicit Text(std::string type) : type(std::move(type)) {}
  bool isNarrow() const { return type != "f32"; }
  const std::string &storage() const { return type; }

  Text &shape(char name, std::vector<int64_t> sizes); ///< -1: the sample axis
  /// An argument in the type of storage, widened to `%name` if it is narrow. \param attributes  ", test.low = ..."
  Text &in(const std::string &name, char shape, const std::string &attributes = "");
  Text &wideIn(const std::string &name, char shape, const std::string &attributes = "");                         ///< in f32
  Text &narrowIn(const std::string &name, char shape, const std::string &attributes = "");                       ///< not widened
  Text &ids(const std::string &name, char shape, int64_t low, int64_t high, const std::string &element = "i64"); ///< in [low, high)
  Text &argument(const std::string &text);                                                                       ///< whole, with $ and #
  Text &line(const std::string &text);
  Text &out(const std::string &value, char shape);       ///< narrowed
  Text &wideOut(const std::string &value, char shape);   ///< f32
  Text &narrowOut(const std::string &value, char shape); ///< has the type of storage already
  Text &result(const std::string &value, const std::string &type, const std::string &attributes);

  std::string str() const;
  std::string expand(const std::string &text) const;

private:
  std::string tensor(char shape, const std::string &element) const;
  bool isSampled(char shape) const;
  void add(std::string &list, const std::string &text) { list += (list.empty() ? "" : ", ") + text; }

  std::string type, arguments, body, results, values, types;
  std::map<char, std::vector<int64_t>> shapes;
  int boundaries = 0, parameters = 0, inputs = 0, outs = 0, gradients = 0, casts = 0;
};

struct Case {
  std::string text;
  int64_t rows = 1;
  std::string shape; ///< for messages
};

struct KernelClass {
  const char *name;
  std::function<Case(Sizes &, const std::string &type)> make;
  bool narrowAlone = false; ///< in bf16 and f16, not in f32
};

/// All classes whose kernels come from functions.
std::vector<KernelClass> kernelClasses();

// By file.
void addElementClasses(std::vector<KernelClass> &classes);
void addRowClasses(std::vector<KernelClass> &classes);
void addColumnClasses(std::vector<KernelClass> &classes);
void addAttentionClasses(std::vector<KernelClass> &classes);
void addUpdateClasses(std::vector<KernelClass> &classes);
/// Matrix products, which the stand-in for cuBLASLt multiplies.
KernelClass productClass();

} // namespace zorse::conformance
