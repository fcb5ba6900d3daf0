// Where the bytes of a checkpoint come from.
#pragma once

#include "zorse/runtime/CheckpointFiles.h"

namespace zorse::runtime {

class ShardSource {
public:
  virtual ~ShardSource();

  /// Reads slices of one file in order and passes each to `take`. The bytes are those of the
  /// checkpoint, or the call fails.
  /// \param wanted  indices in CheckpointFile.shards, ascending
  virtual Status
  read(const CheckpointIndex &index, const CheckpointFile &file, const std::vector<size_t> &wanted,
       const std::function<void(const CheckpointShard &, const std::byte *)> &take) const = 0;
};

} // namespace zorse::runtime
