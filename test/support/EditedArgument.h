// Changes arguments of programs in tests.
#pragma once

#include "ArgumentBindings.h"

#include <algorithm>
#include <vector>

namespace zorse::test {

/// One argument of a call in a compute instruction of a program. A table row that other arguments
/// share is copied before it is changed.
class EditedArgument {
public:
  EditedArgument(bundle::Program &program, bundle::Call &call, int argument)
      : program(&program), call(&call), argument(argument) {}

  const bundle::Region &region() const { return bound().region; }
  const bundle::Value &value() const { return bound().value; }
  bool overwrite() const { return bound().overwrite; }

  bundle::Region *mutable_region() {
    return own(*program->mutable_regions(), *call->mutable_regions(), &bundle::Call::regions);
  }
  bundle::Value *mutable_value() {
    return own(*program->mutable_values(), *call->mutable_values(), &bundle::Call::values);
  }
  void set_overwrite(bool overwrite) {
    if (call->overwrites_size() <= argument)
      call->mutable_overwrites()->Resize(argument + 1, false);
    call->set_overwrites(argument, overwrite);
  }

private:
  using Column = google::protobuf::RepeatedField<uint32_t>;

  bundle::Program *program;
  bundle::Call *call;
  int argument;

  bundle::ArgumentBinding bound() const {
    return bundle::ArgumentBindings(*program, *call)[argument];
  }
  template <typename Table>
  typename Table::value_type *own(Table &table, Column &rows,
                                  const Column &(bundle::Call::*column)() const) {
    const uint32_t row = rows[argument];
    int64_t users = 0;
    for (const bundle::Instruction &instruction : program->instructions())
      for (const bundle::Call &other : instruction.compute().calls())
        users += std::count((other.*column)().begin(), (other.*column)().end(), row);
    if (users > 1) {
      rows.Set(argument, uint32_t(table.size()));
      *table.Add() = table[int(row)];
    }
    return table.Mutable(int(rows[argument]));
  }
};

/// All arguments of a call.
inline std::vector<EditedArgument> argumentsOf(bundle::Program &program, bundle::Call &call) {
  std::vector<EditedArgument> arguments;
  for (int s = 0; s < bundle::ArgumentBindings(program, call).size(); ++s)
    arguments.emplace_back(program, call, s);
  return arguments;
}

/// Removes the arguments of a call.
inline void unbind(bundle::Call &call) {
  call.clear_regions();
  call.clear_values();
  call.clear_overwrites();
}

} // namespace zorse::test
