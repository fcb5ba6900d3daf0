// Builds an exec.program from plain data, for programToExec.
#pragma once

#include "zorse/Conversion/ExecConversion.h"
#include "zorse/Dialect/Exec/Exec.h"

#include "mlir/IR/Builders.h"

namespace zorse::conversion {

class ExecBuilder {
public:
  ExecBuilder(mlir::MLIRContext *context, const ExecNames &names) : builder(context), names(names), loc(builder.getUnknownLoc()) {}

  void start(uint32_t device, llvm::StringRef name, uint64_t plannedBytes);

  void arena(bundle::MemoryKind kind, uint64_t bytes);
  void queue(bundle::QueueKind kind, uint32_t id);
  void state(exec::ValueAttr value, exec::RegionAttr region, bundle::ElementType type);

  /// What every entry has. Follow with one of the ops below.
  struct Common {
    uint32_t id;
    exec::QueueAttr queue;
    bundle::Phase phase;
    llvm::SmallVector<mlir::Attribute> waits;
    double start, finish;
  };

  void compute(const Common &entry, bundle::Compute::Task task, int32_t cell, int32_t group);
  void call(uint32_t body, int32_t unit, int64_t rows, int64_t sampleBase, uint64_t instanceBase, llvm::ArrayRef<mlir::Attribute> slots);
  void endCompute();
  template <typename Op, typename... What> void entry(const Common &common, What... what) {
    Op::create(builder, loc, id(common), what..., common.queue, phase(common), waits(common), time(common.start, common),
               time(common.finish, common));
  }

  exec::QueueAttr queueOf(uint32_t index) const { return queues.at(index); }
  bool hasQueue(uint32_t index) const { return index < queues.size(); }
  exec::RegionAttr region(const bundle::Region &r) { return exec::RegionAttr::get(context(), r.arena(), r.offset(), r.bytes()); }
  /// Null for what is absent.
  exec::RegionAttr optionalRegion(const bundle::Region &r) { return r.ByteSizeLong() == 0 ? exec::RegionAttr() : region(r); }
  exec::ValueAttr value(bundle::Value::Kind kind, uint32_t id, uint32_t cut, int64_t begin, int64_t end, uint32_t version);
  mlir::Attribute binding(bundle::AccessMode mode, bool overwrite, exec::ValueAttr value, exec::RegionAttr region) {
    return exec::BindingAttr::get(context(), static_cast<exec::Access>(mode), overwrite, value, region);
  }
  mlir::FlatSymbolRefAttr device(uint32_t index) { return mlir::FlatSymbolRefAttr::get(context(), deviceName(index)); }
  template <typename Range> mlir::ArrayAttr deviceList(const Range &indices) {
    llvm::SmallVector<mlir::Attribute> list;
    for (uint32_t index : indices)
      list.push_back(device(index));
    return builder.getArrayAttr(list);
  }
  mlir::Attribute extent(uint32_t member, int64_t begin, int64_t end) { return exec::ExtentAttr::get(context(), device(member), begin, end); }
  mlir::TypeAttr type(bundle::ElementType type);
  exec::OrderAttr order(bundle::ReductionOrder order) { return exec::OrderAttr::get(context(), static_cast<exec::Order>(order)); }
  mlir::IntegerAttr number(int64_t value) { return builder.getI64IntegerAttr(value); }
  mlir::ArrayAttr array(llvm::ArrayRef<mlir::Attribute> elements) { return builder.getArrayAttr(elements); }
  mlir::MLIRContext *context() const { return builder.getContext(); }

  mlir::OwningOpRef<mlir::ModuleOp> finish() { return std::move(module); }
  mlir::InFlightDiagnostic error() { return mlir::emitError(loc); }

private:
  mlir::IntegerAttr id(const Common &c) { return number(c.id); }
  exec::PhaseAttr phase(const Common &c) { return exec::PhaseAttr::get(context(), static_cast<exec::Phase>(c.phase)); }
  mlir::ArrayAttr waits(const Common &c) { return c.waits.empty() ? mlir::ArrayAttr() : builder.getArrayAttr(c.waits); }
  mlir::FloatAttr time(double t, const Common &c) { return c.start == 0 && c.finish == 0 ? mlir::FloatAttr() : builder.getF64FloatAttr(t); }
  std::string deviceName(uint32_t index) const;

  mlir::OpBuilder builder;
  const ExecNames &names;
  mlir::Location loc;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  exec::ComputeOp open;
  std::vector<exec::QueueAttr> queues;
  uint32_t self = 0;
  std::string selfName;
};

} // namespace zorse::conversion
