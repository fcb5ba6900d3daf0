// Makes the functions that the suite compiles, as text: one per kernel class, element type and
// shape.
//
// Low-precision values are read and written in two bytes and computed in f32, as in the output of
// zorse-low-precision-storage. Parameters, statistics and gradients of parameters are f32
// (docs/concepts/precision.md).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace zorse::conformance {

/// Chooses sizes: first the edge cases of a fixed list, then random ones.
class Sizes {
public:
  /// \param index  index of the shape in its class
  /// \param large  approximate number of elements in a value, large enough that a kernel is limited
  /// by memory bandwidth; 0: use the list
  Sizes(int index, uint64_t seed, int64_t large = 0)
      : index(index), large(large), random(seed * 1000003 + uint64_t(index)) {}

  /// Columns of a row: from the list, then up to `max`.
  int64_t columns(int64_t max = 2500);
  /// Rows of the batch dimension: at least one, as in calls (KernelAbi.h), and few if `columns` is
  /// large.
  int64_t rows(int64_t columns);
  /// A small size: 1, 2, 3, 5, ...
  int64_t lead();
  int64_t below(int64_t end) { return int64_t(random() % uint64_t(end)); }
  int64_t oneOf(std::initializer_list<int64_t> list) {
    return *(list.begin() + below(int64_t(list.size())));
  }
  /// Item `index` of the list; a random item if `index` is beyond its end.
  int64_t inTurn(std::initializer_list<int64_t> list) {
    return index < int(list.size()) ? *(list.begin() + index) : oneOf(list);
  }

  const int index;
  const int64_t large;
  std::mt19937_64 random;
};

/// Writes a function. In lines, `$A` is the tensor type of shape A in f32, and `#A` the same in the
/// storage type.
class Text {
public:
  explicit Text(std::string type) : type(std::move(type)) {}
  bool isNarrow() const { return type != "f32"; }
  const std::string &storage() const { return type; }

  Text &shape(char name, std::vector<int64_t> sizes); ///< -1: the batch dimension
  /// An argument in the storage type, converted to f32 as `%name` if it is low-precision. \param
  /// attributes  ", test.low = ..."
  Text &in(const std::string &name, char shape, const std::string &attributes = "");
  Text &wideIn(const std::string &name, char shape, const std::string &attributes = ""); ///< f32
  Text &narrowIn(const std::string &name, char shape,
                 const std::string &attributes = ""); ///< not converted
  Text &ids(const std::string &name, char shape, int64_t low, int64_t high,
            const std::string &element = "i64"); ///< in [low, high)
  Text &argument(const std::string &text);       ///< full text, with $ and #
  Text &line(const std::string &text);
  Text &out(const std::string &value, char shape);       ///< converted to the storage type
  Text &wideOut(const std::string &value, char shape);   ///< f32
  Text &narrowOut(const std::string &value, char shape); ///< already in the storage type
  Text &result(const std::string &value, const std::string &type, const std::string &attributes);

  std::string str() const;
  std::string expand(const std::string &text) const;

private:
  std::string tensor(char shape, const std::string &element) const;
  bool isSampled(char shape) const;
  void add(std::string &list, const std::string &text) {
    list += (list.empty() ? "" : ", ") + text;
  }

  std::string type, arguments, function, results, values, types;
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
  bool narrowAlone = false; ///< only bf16 and f16
};

/// All classes of kernels that are compiled from functions.
std::vector<KernelClass> kernelClasses();

// The classes of each file.
void addElementClasses(std::vector<KernelClass> &classes);
void addRowClasses(std::vector<KernelClass> &classes);
void addColumnClasses(std::vector<KernelClass> &classes);
void addAttentionClasses(std::vector<KernelClass> &classes);
void addUpdateClasses(std::vector<KernelClass> &classes);
/// Matmuls, which the fake cuBLASLt computes.
KernelClass productClass();

} // namespace zorse::conformance
