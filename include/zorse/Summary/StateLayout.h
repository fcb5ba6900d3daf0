// Where the numbers of optimizer states are. An update rule divides parameters into blocks: single
// elements, matrices (Muon), whole parameters (Adafactor) or 256 elements (8-bit Adam). A state has
// a number of entries per block.
#pragma once

#include "bundle.pb.h"

#include <cstdint>
#include <vector>

namespace zorse {

/// Number of elements of a block; 1 if the rule updates every element alone.
int64_t blockElements(const bundle::UpdateRule &rule);

/// Bytes of optimizer states per element of a parameter.
/// \param type  of the parameter
double stateBytesPerElement(const bundle::UpdateRule &rule, bundle::ElementType type);

/// The update rule of a group's parameters, or null if it is frozen or has none. Rules of a group
/// agree about the number and types of states.
const bundle::UpdateRule *ruleOf(const bundle::ModelSummary &summary,
                                 const bundle::FlatGroupInfo &group);

/// Maps elements of a group to entries of one of its optimizer states. Entries of every parameter
/// begin at a multiple of 512 bytes, as its elements do. A state with one entry per element, of the
/// type of the group, has the positions of the elements.
class StateLayout {
public:
  /// \param state  index, less than the number of states of the group's rules
  StateLayout(const bundle::ModelSummary &summary, uint32_t group, uint32_t state);

  bundle::ElementType type() const { return type_; }
  /// Number of entries, with padding.
  int64_t entries() const { return entries_; }
  /// Returns the first entry of the elements from `element` on. Precondition: it is the border of a
  /// block, or between parameters.
  int64_t begin(int64_t element) const;
  /// Returns the end of the entries of the elements before `element`, without padding after a
  /// parameter.
  int64_t end(int64_t element) const;

private:
  struct Parameter {
    int64_t offset, elements; ///< in the group
    int64_t entry;            ///< of its first block
    int64_t block, perBlock;
  };
  const Parameter *at(int64_t element) const;

  bundle::ElementType type_;
  int64_t entries_ = 0;
  bool identity_ = true;
  std::vector<Parameter> parameters_; ///< empty for identity_
};

} // namespace zorse
