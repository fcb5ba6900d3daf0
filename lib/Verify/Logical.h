// The logical value of a region: the content of bundle::Value, with sizes from the summary.
#pragma once

#include "Device.h"

namespace zorse::verify {

struct Logical {
  bundle::Value::Kind kind = bundle::Value::NONE;
  uint32_t id = 0, cut = 0, version = 0;
  int64_t begin = 0, end = 0; ///< elements of state, otherwise samples
  int64_t stride = 0;         ///< bytes per element or sample; 0: indivisible
  int64_t bytes = 0;          ///< bytes of the whole value
  int64_t parameter = -1;     ///< the parameter that contains all its elements; -1: none or several
  bool stays = false; ///< must stay on its device, except in collectives: sums and unreduced
                      ///< gradients
  int64_t offset = 0; ///< of a part of an exchange: bytes before it
};

/// The required content of an argument of a unit function, except for the samples of the call. It
/// follows from unit and argument.
struct UnitArgument {
  bool exists = false; ///< whether the unit has it
  bool rows = false;   ///< true: the rows of the call; false: as in `value`
  int64_t fixedBytes = 0, bytesPerRow = 0;
  Logical value; ///< its bytes are those for the rows of the latest call
};

/// The arguments of the unit functions that a program calls. They are computed once, because all
/// cells call the same functions.
class UnitArguments {
public:
  explicit UnitArguments(const Model &model)
      : model(model), functions(size_t(model.summary.units_size())) {}
  /// The arguments of a call with a unit. Valid until the next call of `of`.
  const std::vector<UnitArgument> &of(uint32_t device, const bundle::Call &call);

private:
  struct Function {
    uint32_t function;
    int64_t rows; ///< rows of the latest call
    std::vector<UnitArgument> arguments;
  };
  const Model &model;
  std::vector<std::vector<Function>> functions; ///< per unit
};

/// Computes the sizes of a declared value. Reports a finding and returns false if the value does
/// not exist or its size is not `bytes`.
bool fromDeclared(Device &device, const bundle::Instruction &instruction,
                  const bundle::Value &value, uint64_t bytes, Logical &out);

/// Computes the whole value of a gather or reduction, which its extents divide, and the term that
/// each contributor to a sum has. Reports a finding and returns false if such a value is not
/// gathered or summed in this way.
bool fromCollective(Device &device, const bundle::Instruction &instruction,
                    const bundle::Collective &collective, Logical &whole, Logical &term);

/// Computes the required contents of the arguments of a call. For unit functions they follow from
/// plan and summary; for updates, norms and loss sums from the extent of the declared value.
/// Appends one value per argument. Reports a finding and returns false if an argument is not valid
/// for the call, or if its size differs from its value's size.
bool fromCall(Device &device, UnitArguments &units, const bundle::Instruction &instruction,
              const bundle::Call &call, std::vector<Logical> &values);

} // namespace zorse::verify
