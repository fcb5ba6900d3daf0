// Argument bindings of calls, as programs store them: columns of row numbers in the program's
// tables. All code reads and writes bindings through these classes; no other code depends on the
// layout.
#pragma once

#include "bundle.pb.h"

#include <array>
#include <unordered_map>

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

/// Writes the bindings of a program's calls. Equal regions share one row, as do equal values.
class ArgumentBinder {
public:
  explicit ArgumentBinder(Program &program) : program_(program) {}

  /// Appends the binding of the next argument of a call.
  void bind(Call &call, const Region &region, const Value &value, bool overwrite = false) {
    call.add_regions(row({region.arena(), region.offset(), region.bytes()}, region, regions_,
                         *program_.mutable_regions()));
    call.add_values(row({uint64_t(value.kind()), value.id(), value.cut(), uint64_t(value.begin()),
                         uint64_t(value.end()), value.version()},
                        value, values_, *program_.mutable_values()));
    if (!overwrite)
      return;
    call.mutable_overwrites()->Resize(call.regions_size(), false);
    call.set_overwrites(call.regions_size() - 1, true);
  }

private:
  using Key = std::array<uint64_t, 6>; ///< numbers of a row
  struct Hash {
    size_t operator()(const Key &key) const {
      uint64_t hash = 0;
      for (uint64_t number : key)
        hash = ((hash ^ hash >> 32) + number) * 0x9E3779B97F4A7C15ull;
      return size_t(hash ^ hash >> 32);
    }
  };
  using Rows = std::unordered_map<Key, uint32_t, Hash>;
  template <typename Message>
  static uint32_t row(const Key &key, const Message &message, Rows &rows,
                      google::protobuf::RepeatedPtrField<Message> &table) {
    auto [found, added] = rows.try_emplace(key, uint32_t(table.size()));
    if (added)
      *table.Add() = message;
    return found->second;
  }

  Program &program_;
  Rows regions_, values_;
};

} // namespace zorse::bundle
