#include "Call.h"

using namespace zorse::onnx_reference;

bool Call::all(std::initializer_list<size_t> which, bool isFloat) {
  for (size_t index : which)
    if (const Array *array = in(index); !array || array->isFloat() != isFloat)
      return fail(std::string("expects ") + (isFloat ? "floats" : "integers") + " as input " +
                  std::to_string(index));
  return true;
}

int64_t Call::integer(const std::string &name, int64_t otherwise) const {
  auto found = node.attributes.find(name);
  return found == node.attributes.end() ? otherwise : found->second->i();
}

double Call::real(const std::string &name, double otherwise) const {
  auto found = node.attributes.find(name);
  return found == node.attributes.end() ? otherwise : static_cast<double>(found->second->f());
}

std::string Call::string(const std::string &name, const std::string &otherwise) const {
  auto found = node.attributes.find(name);
  return found == node.attributes.end() ? otherwise : found->second->s();
}

std::optional<std::vector<int64_t>> Call::integers(const std::string &name) const {
  auto found = node.attributes.find(name);
  if (found == node.attributes.end())
    return std::nullopt;
  return std::vector<int64_t>(found->second->ints().begin(), found->second->ints().end());
}

std::optional<std::vector<int64_t>> Call::integers(size_t index, const std::string &name) const {
  if (const Array *array = in(index); array && !array->isFloat())
    return array->integers;
  return integers(name);
}

bool Call::axis(int64_t value, int64_t rank, int64_t &result) {
  result = value < 0 ? value + rank : value;
  return (result >= 0 && result < rank) ||
         fail("axis " + std::to_string(value) + " of " + std::to_string(rank));
}
