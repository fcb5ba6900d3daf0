// Argument bindings of calls, as programs store them: columns of row numbers in the program's
// tables. All code reads and writes bindings through these classes; no other code depends on the
// layout.
#pragma once

#include "bundle.pb.h"

#include <array>
#include <cstdint>
#include <vector>

namespace zorse::bundle {

/// Binding of one argument. Valid as long as the program's tables.
struct ArgumentBinding {
  const Region &region;
  const Value &value;
  bool overwrite;
};

/// Reads the bindings of one call of a program. All arguments can be read even if the program is
/// invalid: an argument with an invalid row number has an empty region or no value.
class ArgumentBindings {
public:
  /// \param program, call  kept by reference
  ArgumentBindings(const Program &program, const Call &call) : program_(program), call_(call) {}

  int size() const { return call_.regions_size(); }
  ArgumentBinding operator[](int argument) const {
    return {row(program_.regions(), call_.regions(), argument),
            row(program_.values(), call_.values(), argument),
            argument < call_.overwrites_size() && call_.overwrites(argument)};
  }
  /// Returns whether every argument has a region and a value of the program.
  bool complete() const {
    return call_.values_size() == size() && call_.overwrites_size() <= size() &&
           inside(call_.regions(), program_.regions_size()) &&
           inside(call_.values(), program_.values_size());
  }
  /// Precondition: complete(). Returns the row number of an argument's region, which is less than
  /// the number of the program's regions. Arguments with equal numbers use the same bytes.
  uint32_t regionNumber(int argument) const { return call_.regions(argument); }

private:
  using Column = google::protobuf::RepeatedField<uint32_t>;
  template <typename Table>
  static const typename Table::value_type &row(const Table &table, const Column &column,
                                               int argument) {
    const bool exists = argument < column.size() && column[argument] < uint32_t(table.size());
    return exists ? table[int(column[argument])] : Table::value_type::default_instance();
  }
  static bool inside(const Column &column, int rows) {
    for (uint32_t number : column)
      if (number >= uint32_t(rows))
        return false;
    return true;
  }

  const Program &program_;
  const Call &call_;
};

/// Finds the number of a row of a table by the row's numbers. Open addressing, because programs
/// have millions of arguments.
template <size_t n> class RowNumbers {
public:
  using Row = std::array<uint64_t, n>;

  /// \param first  number of the first row
  explicit RowNumbers(uint32_t first) : first_(first) {}

  /// Returns the number of a row. A new row gets the next number.
  uint32_t find(const Row &row, bool &isNew) {
    if (2 * rows_.size() >= slots_.size())
      grow();
    uint32_t *slot = &slots_[slotOf(row)];
    while (*slot != kFree && rows_[*slot] != row)
      slot = slot + 1 == slots_.data() + slots_.size() ? slots_.data() : slot + 1;
    isNew = *slot == kFree;
    if (isNew) {
      *slot = uint32_t(rows_.size());
      rows_.push_back(row);
    }
    return first_ + *slot;
  }

private:
  static constexpr uint32_t kFree = UINT32_MAX;

  size_t slotOf(const Row &row) const {
    uint64_t hash = 0;
    for (uint64_t number : row)
      hash = ((hash ^ hash >> 32) + number) * 0x9E3779B97F4A7C15ull;
    return size_t(hash >> 32) & (slots_.size() - 1);
  }

  void grow() {
    slots_.assign(slots_.empty() ? 64 : 2 * slots_.size(), kFree);
    for (uint32_t number = 0; number < rows_.size(); ++number) {
      size_t slot = slotOf(rows_[number]);
      while (slots_[slot] != kFree)
        slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = number;
    }
  }

  const uint32_t first_;
  std::vector<Row> rows_;
  std::vector<uint32_t> slots_; ///< indices of rows; a power of two
};

/// Writes the bindings of a program's calls. Equal regions share one row, as do equal values.
class ArgumentBinder {
public:
  using RegionRow = std::array<uint64_t, 3>; ///< arena, offset, bytes
  using ValueRow = std::array<uint64_t, 6>;  ///< kind, id, cut, begin, end, version

  explicit ArgumentBinder(Program &program)
      : program_(program), regions_(uint32_t(program.regions_size())),
        values_(uint32_t(program.values_size())) {}

  /// Appends the binding of the next argument of a call.
  void bind(Call &call, const RegionRow &region, const ValueRow &value, bool overwrite = false) {
    bool isNew = false;
    call.add_regions(regions_.find(region, isNew));
    if (isNew)
      add(region);
    call.add_values(values_.find(value, isNew));
    if (isNew)
      add(value);
    if (!overwrite)
      return;
    call.mutable_overwrites()->Resize(call.regions_size(), false);
    call.set_overwrites(call.regions_size() - 1, true);
  }
  void bind(Call &call, const Region &region, const Value &value, bool overwrite = false) {
    bind(call, {region.arena(), region.offset(), region.bytes()},
         {uint64_t(value.kind()), value.id(), value.cut(), uint64_t(value.begin()),
          uint64_t(value.end()), value.version()},
         overwrite);
  }

private:
  void add(const RegionRow &row) {
    Region &region = *program_.add_regions();
    region.set_arena(uint32_t(row[0]));
    region.set_offset(row[1]);
    region.set_bytes(row[2]);
  }
  void add(const ValueRow &row) {
    Value &value = *program_.add_values();
    value.set_kind(Value::Kind(row[0]));
    value.set_id(uint32_t(row[1]));
    value.set_cut(uint32_t(row[2]));
    value.set_begin(int64_t(row[3]));
    value.set_end(int64_t(row[4]));
    value.set_version(uint32_t(row[5]));
  }

  Program &program_;
  RowNumbers<3> regions_;
  RowNumbers<6> values_;
};

} // namespace zorse::bundle
