// What the members of a reduction of gradients contribute. A plan's nodes and sites determine a
// tree of additions; a reduction makes the sum of one of its groups.
#pragma once

#include "Model.h"

#include "Collectives.h"

#include <optional>

namespace zorse::verify {

class Reduction {
public:
  /// \param collective  a reduction of an existing state group
  Reduction(const Model &model, const bundle::Collective &collective);

  enum class Form : uint8_t {
    None,     ///< not a sum of a group of the tree
    Exchange, ///< all contributors of the state group add their gradients
    Level,    ///< one device for each child of the group adds the child's sum
    Forward,  ///< a device passes the group's sum on
  };
  Form form = Form::None;

  struct Term {
    bundle::Value::Kind kind;
    uint32_t cut;
  };
  /// Returns what a member has. \returns nothing if it has no place in the tree
  std::optional<Term> termOf(uint32_t device) const;

  /// Returns the first shard of a level whose terms are not those of the children, in their order.
  std::optional<Shard> incompleteShard() const;

private:
  bool isBelow(collectives::Child child, uint32_t device) const;

  const collectives::Tree &tree;
  const bundle::Collective &collective;
  uint32_t group = 0; ///< of the tree
};

} // namespace zorse::verify
