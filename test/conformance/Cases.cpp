#include "Cases.h"

#include <cctype>

using namespace zorse::conformance;

int64_t Sizes::columns(int64_t max) {
  if (large)
    return std::min<int64_t>({4096, large / 4, max});
  // One and primes; just below, at and above the sizes of vectors (4, 8), warps, blocks, and a
  // warp's part of a row (1,024).
  static const std::vector<int64_t> list = {1,   2,   3,    4,    5,    7,    8,    9,
                                            16,  31,  32,   33,   97,   127,  128,  129,
                                            255, 257, 1000, 1023, 1024, 1025, 1031, 2049};
  if (index < int(list.size()))
    return std::min(list[size_t(index)], max);
  const int64_t near = oneOf({4, 8, 32, 64, 128, 256, 512, 1024}) * (1 + below(2)) + below(3) - 1;
  return std::min(max, below(2) ? near : 1 + below(max));
}

int64_t Sizes::rows(int64_t columns) {
  if (large)
    return large / columns;
  static const int64_t list[] = {1, 2, 3, 31, 33, 4, 7};
  const int64_t rows = list[size_t(index) % 7];
  return columns > 200 ? std::min<int64_t>(rows, 3) : rows;
}

int64_t Sizes::lead() { return large ? 1 : oneOf({1, 1, 2, 3, 5}); }

Text &Text::shape(char name, std::vector<int64_t> sizes) {
  shapes[name] = std::move(sizes);
  return *this;
}

std::string Text::tensor(char shape, const std::string &element) const {
  std::string text = "tensor<";
  for (int64_t size : shapes.at(shape))
    text += (size < 0 ? std::string("?") : std::to_string(size)) + "x";
  return text + element + ">";
}

bool Text::isSampled(char shape) const {
  return !shapes.at(shape).empty() && shapes.at(shape)[0] < 0;
}

std::string Text::expand(const std::string &text) const {
  std::string all;
  for (size_t i = 0; i < text.size(); ++i)
    if ((text[i] == '$' || text[i] == '#') && i + 1 < text.size() && std::isupper(text[i + 1])) {
      all += tensor(text[i + 1], text[i] == '$' ? "f32" : type);
      ++i;
    } else {
      all += text[i];
    }
  return all;
}

Text &Text::argument(const std::string &text) {
  add(arguments, expand(text));
  return *this;
}

Text &Text::narrowIn(const std::string &name, char shape, const std::string &attributes) {
  const std::string slot = isSampled(shape) ? "boundary_in" + std::to_string(boundaries++)
                                            : "parameter" + std::to_string(parameters++);
  return argument(name + ": #" + shape + " {@@" + slot + attributes + "}");
}

Text &Text::in(const std::string &name, char shape, const std::string &attributes) {
  if (!isNarrow())
    return narrowIn(name, shape, attributes);
  narrowIn(name + "_stored", shape, attributes);
  return line(name + " = arith.extf " + name + "_stored : #" + shape + " to $" + shape);
}

Text &Text::wideIn(const std::string &name, char shape, const std::string &attributes) {
  const std::string slot = isSampled(shape) ? "boundary_in" + std::to_string(boundaries++)
                                            : "parameter" + std::to_string(parameters++);
  return argument(name + ": $" + shape + " {@@" + slot + attributes + "}");
}

Text &Text::ids(const std::string &name, char shape, int64_t low, int64_t high,
                const std::string &element) {
  add(arguments, name + ": " + tensor(shape, element) + " {@@input" + std::to_string(inputs++) +
                     ", test.low = " + std::to_string(low) +
                     " : i64, test.high = " + std::to_string(high) + " : i64}");
  return *this;
}

Text &Text::line(const std::string &text) {
  function += "  " + expand(text) + "\n";
  return *this;
}

Text &Text::result(const std::string &value, const std::string &of, const std::string &attributes) {
  add(values, value);
  add(types, expand(of));
  add(results, expand(of) + " {" + attributes + "}");
  return *this;
}

Text &Text::wideOut(const std::string &value, char shape) {
  const std::string argument = isSampled(shape)
                                   ? "boundary_out" + std::to_string(outs++)
                                   : "parameter_gradient" + std::to_string(gradients++);
  return result(value, std::string("$") + shape, "@@" + argument);
}

Text &Text::narrowOut(const std::string &value, char shape) {
  return result(value, std::string("#") + shape, "@@boundary_out" + std::to_string(outs++));
}

Text &Text::out(const std::string &value, char shape) {
  if (!isNarrow())
    return wideOut(value, shape);
  const std::string narrow = "%narrowed" + std::to_string(casts++);
  line(narrow + " = arith.truncf " + value + " : $" + shape + " to #" + shape);
  return narrowOut(narrow, shape);
}

std::string Text::str() const {
  return "func.func @f(" + arguments + ") -> (" + results + ") {\n" + function + "  return " +
         values + " : " + types + "\n}\n";
}

std::vector<KernelClass> zorse::conformance::kernelClasses() {
  std::vector<KernelClass> classes;
  addElementClasses(classes);
  addRowClasses(classes);
  addColumnClasses(classes);
  addAttentionClasses(classes);
  addUpdateClasses(classes);
  return classes;
}
