// The imported head: the operations that the terms of the loss need, evaluated in f64 for cells of
// a batch.
#pragma once

#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Support/ReferenceEvaluator.h"
#include "zorse/runtime/Expression.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

#include <map>
#include <string>
#include <vector>

namespace zorse::onnx_import {

/// A term of the loss: factor(B, counts) * sum over samples of numerator.
struct HeadTerm {
  mlir::Value numerator;
  Expression factor;
};

struct HeadCount {
  mlir::Value value;
  ReduceKind reduce = ReduceKind::Sum;
};

class HeadProgram {
public:
  explicit HeadProgram(mlir::func::FuncOp function);
  /// Reads the results of @model. False with `problem` set.
  bool readTerms();

  /// Finds the operations between `cuts` and the loss. \returns arguments that they read and that
  /// are not cuts
  std::vector<mlir::BlockArgument> slice(const llvm::DenseSet<mlir::Value> &cuts, bool lossOfLabel);
  bool reads(mlir::Value cut) const { return met.contains(cut); }
  /// Number of multiplications and additions for `samples` samples.
  int64_t operations(int64_t samples) const;
  int64_t size() const { return static_cast<int64_t>(order.size()); }

  using Data = llvm::MapVector<mlir::Value, reference::Tensor>;
  struct Sums {
    std::vector<double> numerators, counts;
  };
  /// Begins a batch with data of all samples for every cut. Returns false and sets `problem` if it
  /// cannot be evaluated.
  bool begin(const Data &data, int64_t samples);
  /// Computes the sums over samples [first, last) of the batch. Results are cached per cell.
  bool cell(int64_t first, int64_t last, Sums &sums);
  const std::string &problem() const { return why; }

  const std::vector<HeadTerm> &loss() const { return terms; }
  const std::vector<double> &totals() const {
    return options.counts;
  } ///< counts of the whole batch
  ReduceKind reduceOf(size_t count) const { return counts[count].reduce; }

private:
  using Values = llvm::DenseMap<mlir::Value, reference::Tensor>;
  const reference::Tensor &tensorOf(mlir::Value value, const Values &values) const;
  bool evaluate(mlir::Operation *op, Values &values, int64_t rows);
  bool evaluateLoss(CrossEntropyOp op, Values &values);
  void need(llvm::ArrayRef<mlir::Value> roots, const llvm::DenseSet<mlir::Value> &cuts,
            llvm::DenseSet<mlir::Operation *> &needed, std::vector<mlir::BlockArgument> &open);
  double reduced(const HeadCount &count, const Values &values) const;
  bool run(llvm::ArrayRef<mlir::Operation *> operations, int64_t first, int64_t last,
           Values &values);

  mlir::func::FuncOp function;
  std::vector<HeadTerm> terms;
  std::vector<HeadCount> counts;
  bool ofLabel = false;
  llvm::DenseSet<mlir::Value> met;
  std::vector<mlir::Operation *> order, shared; ///< shared: without samples, the same for all cells
  std::vector<std::vector<mlir::Operation *>> counting; ///< by count: the operations that it needs
                                                        ///< and earlier counts do not
  Values sharedValues;
  Data data;
  reference::Options options;
  int64_t batch = 0;
  std::map<std::pair<int64_t, int64_t>, Sums> cells;
  std::string why;
};

} // namespace zorse::onnx_import
