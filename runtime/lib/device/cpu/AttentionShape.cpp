#include "AttentionShape.h"

#include "../Reach.h"
#include "bundle.pb.h"
#include "zorse/runtime/abi/Library.h"

#include <algorithm>
#include <string>

using namespace zorse;
using namespace zorse::runtime;

namespace {

class Reader {
public:
  explicit Reader(const bundle::LibraryCall &call) : call_(call) {}

  int64_t required(const std::string &name) {
    auto found = call_.integers().find(name);
    if (found == call_.integers().end())
      return fail("misses integer '" + name + "'"), 1;
    return inRange(name, found->second, 1);
  }
  int64_t integer(const std::string &name, int64_t otherwise) {
    auto found = call_.integers().find(name);
    return inRange(name, found == call_.integers().end() ? otherwise : found->second, 0);
  }
  /// Refuses sizes that no memory can have, so that sums of sizes do not overflow.
  int64_t inRange(const std::string &name, int64_t value, int64_t min) {
    if (value < min)
      fail("expects integer '" + name + "' >= " + std::to_string(min) + ", got " +
           std::to_string(value));
    else if (value > kLargestSize)
      fail("expects integer '" + name + "' <= 2^48, got " + std::to_string(value));
    else
      return value;
    return min;
  }
  double real(const std::string &name, double otherwise) const {
    auto found = call_.reals().find(name);
    return found == call_.reals().end() ? otherwise : found->second;
  }
  /// Strides default to a contiguous [rows, positions, heads, size]. Products read a head's
  /// positions as matrix rows: positions must not overlap, except that a single one may have any
  /// stride.
  HeadStrides strides(const std::string &name, int64_t positions, int64_t heads, int64_t size) {
    int64_t position = 0,
            row = 0; // strides of a contiguous tensor, or larger than any valid stride
    if (__builtin_mul_overflow(heads, size, &position) ||
        __builtin_mul_overflow(position, positions, &row))
      row = INT64_MAX;
    position = integer(name + "_position", position);
    if (positions == 1)
      position = std::max(position, size);
    else if (position < size && !halfType(call_.type())) // half-precision operands are copied
      fail("expects integer '" + name + "_position' >= " + std::to_string(size) +
           ", the size of a head, got " + std::to_string(position));
    return {integer(name + "_row", row), position, integer(name + "_head", size)};
  }
  void fail(const std::string &what) {
    if (problem_.empty())
      problem_ = "library routine '" + call_.name() + "': " + what;
  }
  const std::string &problem() const { return problem_; }

private:
  const bundle::LibraryCall &call_;
  std::string problem_;
};

} // namespace

std::optional<HalfType> zorse::runtime::halfType(int elementType) {
  return elementType == bundle::BF16  ? std::optional(HalfType::BF16)
         : elementType == bundle::F16 ? std::optional(HalfType::F16)
                                      : std::nullopt;
}

Result<AttentionShape> zorse::runtime::readAttentionShape(const bundle::LibraryCall &call,
                                                          bool backward) {
  Reader read(call);
  AttentionShape shape;
  shape.stored = halfType(call.type());
  if (!shape.stored && call.type() != bundle::F32 && call.type() != bundle::F64)
    read.fail("expects element type F32, F64, BF16 or F16, got " +
              bundle::ElementType_Name(call.type()));
  if (bundle::ElementType gradient = call.gradient_type();
      gradient != bundle::ELEMENT_TYPE_UNSPECIFIED && gradient != call.type()) {
    if (!shape.stored || gradient != bundle::F32)
      read.fail(
          "expects gradients of the type of what they belong to, or F32 with half precision, got " +
          bundle::ElementType_Name(gradient));
  } else {
    shape.narrowGradients = shape.stored.has_value();
  }
  shape.isDouble = call.type() == bundle::F64;
  shape.queries = read.required("query_length");
  shape.keys = read.required("key_length");
  shape.heads = read.required("heads");
  shape.headSize = read.required("head_size");
  shape.keyHeads = read.integer("key_heads", shape.heads);
  shape.valueHeadSize = read.integer("value_head_size", shape.headSize);
  if (shape.keyHeads < 1 || shape.heads % std::max<int64_t>(shape.keyHeads, 1) != 0)
    read.fail("expects key_heads to divide heads, got " + std::to_string(shape.keyHeads) + " and " +
              std::to_string(shape.heads));
  if (shape.valueHeadSize < 1)
    read.fail("expects value_head_size >= 1");
  shape.causal = read.integer("causal", 0) != 0;
  shape.window = read.integer("window", 0);
  shape.instance = read.integer("instance", 0);
  shape.firstHead = read.integer("first_head", 0);
  shape.maskIsBoolean = read.integer("mask_is_boolean", 0) != 0;
  shape.addsMask = !shape.maskIsBoolean && call.operands_size() > 3 &&
                   call.operands(3).argument() != abi::kAbsentArgument;
  if (shape.stored && shape.addsMask)
    read.fail("expects a boolean mask with half precision");
  shape.maskRow = read.integer("mask_row", 0);
  shape.maskHead = read.integer("mask_head", 0);
  shape.maskQuery = read.integer("mask_query", 0);
  shape.scale = read.real("scale", 1.0);
  shape.softcap = read.real("softcap", 0.0);
  shape.dropout = read.real("dropout", 0.0);
  if (!(shape.dropout >= 0 && shape.dropout < 1))
    read.fail("expects dropout in [0, 1), got " + std::to_string(shape.dropout));
  int scalars = backward ? 11 : 7;
  if (shape.dropout > 0 && (call.operands_size() <= scalars ||
                            call.operands(scalars).argument() == abi::kAbsentArgument))
    read.fail("with dropout the step scalars are expected as operand " + std::to_string(scalars));

  shape.q = read.strides("q", shape.queries, shape.heads, shape.headSize);
  shape.k = read.strides("k", shape.keys, shape.keyHeads, shape.headSize);
  shape.v = read.strides("v", shape.keys, shape.keyHeads, shape.valueHeadSize);
  shape.out = read.strides("out", shape.queries, shape.heads, shape.valueHeadSize);
  if (backward) {
    shape.dout = read.strides("dout", shape.queries, shape.heads, shape.valueHeadSize);
    shape.dq = read.strides("dq", shape.queries, shape.heads, shape.headSize);
    shape.dk = read.strides("dk", shape.keys, shape.keyHeads, shape.headSize);
    shape.dv = read.strides("dv", shape.keys, shape.keyHeads, shape.valueHeadSize);
  }
  if (!read.problem().empty())
    return userError(read.problem());
  return shape;
}
