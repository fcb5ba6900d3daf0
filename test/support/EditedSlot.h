// Changes slots of programs in tests.
#pragma once

#include "SlotBindings.h"

#include <algorithm>
#include <vector>

namespace zorse::test {

/// One slot of a call in a compute entry of a program. A table row that other slots share is copied before it is
/// changed.
class EditedSlot {
public:
  EditedSlot(bundle::Program &program, bundle::Call &call, int slot) : program(&program), call(&call), slot(slot) {}

  const bundle::Region &region() const { return bound().region; }
  const bundle::Value &value() const { return bound().value; }
  bool overwrite() const { return bound().overwrite; }

  bundle::Region *mutable_region() { return own(*program->mutable_regions(), *call->mutable_regions(), &bundle::Call::regions); }
  bundle::Value *mutable_value() { return own(*program->mutable_values(), *call->mutable_values(), &bundle::Call::values); }
  void set_overwrite(bool overwrite) {
    if (call->overwrites_size() <= slot)
      call->mutable_overwrites()->Resize(slot + 1, false);
    call->set_overwrites(slot, overwrite);
  }

private:
  using Column = google::protobuf::RepeatedField<uint32_t>;

  bundle::Program *program;
  bundle::Call *call;
  int slot;

  bundle::SlotBinding bound() const { return bundle::SlotBindings(*program, *call)[slot]; }
  template <typename Table> typename Table::value_type *own(Table &table, Column &rows, const Column &(bundle::Call::*column)() const) {
    const uint32_t row = rows[slot];
    int64_t users = 0;
    for (const bundle::Instruction &instruction : program->instructions())
      for (const bundle::Call &other : instruction.compute().calls())
        users += std::count((other.*column)().begin(), (other.*column)().end(), row);
    if (users > 1) {
      rows.Set(slot, uint32_t(table.size()));
      *table.Add() = table[int(row)];
    }
    return table.Mutable(int(rows[slot]));
  }
};

/// All slots of a call.
inline std::vector<EditedSlot> slotsOf(bundle::Program &program, bundle::Call &call) {
  std::vector<EditedSlot> slots;
  for (int s = 0; s < bundle::SlotBindings(program, call).size(); ++s)
    slots.emplace_back(program, call, s);
  return slots;
}

/// Removes the slots of a call.
inline void unbind(bundle::Call &call) {
  call.clear_regions();
  call.clear_values();
  call.clear_overwrites();
}

} // namespace zorse::test
