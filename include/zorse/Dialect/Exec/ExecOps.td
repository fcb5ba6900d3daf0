// The ops of the exec dialect; the text of every op reads: what, where, on which queue, in which phase, after what, when.
#ifndef ZORSE_DIALECT_EXEC_OPS
#define ZORSE_DIALECT_EXEC_OPS

include "zorse/Dialect/Exec/ExecBase.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/IR/CommonAttrConstraints.td"
include "mlir/IR/SymbolInterfaces.td"

class Exec_Op<string mnemonic, list<Trait> traits = []> : Op<Exec_Dialect, mnemonic, traits>;

// Entries inherit the fields that every entry has; `what` is their own.
class Exec_EntryOp<string mnemonic, dag what, string format, list<Trait> traits = []>
    : Exec_Op<mnemonic, !listconcat([HasParent<"ProgramOp">], traits)> {
  let arguments = !con((ins I64Attr:$id), what,
                       (ins Exec_QueueAttr:$queue, Exec_PhaseAttr:$phase, OptionalAttr<Exec_WaitArray>:$waits, OptionalAttr<F64Attr>:$start,
                        OptionalAttr<F64Attr>:$finish));
  string head = "$id " # format # " `on` custom<Queue>($queue) `in` custom<Phase>($phase) `` custom<When>($waits, $start, $finish)";
  let assemblyFormat = head # " attr-dict";
}

def Exec_ProgramOp : Exec_Op<"program", [NoRegionArguments, SingleBlock, NoTerminator, IsolatedFromAbove]> {
  let summary = "One device's program of a training step.";
  let description = [{
    Holds, in this order: arenas, queues, state, entries.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$device, ArrayAttr:$devices, I64Attr:$planned_bytes);
  let regions = (region AnyRegion:$body);
  let assemblyFormat = "$sym_name `device` $device `of` $devices `planned` $planned_bytes attr-dict-with-keyword $body";
}

def Exec_ArenaOp : Exec_Op<"arena", [HasParent<"ProgramOp">]> {
  let summary = "One static allocation.";
  let arguments = (ins Exec_MemoryKindAttr:$kind, I64Attr:$bytes);
  let assemblyFormat = "custom<MemoryKind>($kind) $bytes attr-dict";
}

def Exec_QueueOp : Exec_Op<"queue", [HasParent<"ProgramOp">]> {
  let summary = "An ordered list of entries, served in order.";
  let arguments = (ins Exec_QueueAttr:$queue);
  let assemblyFormat = "custom<Queue>($queue) attr-dict";
}

def Exec_StateOp : Exec_Op<"state", [HasParent<"ProgramOp">]> {
  let summary = "A region that lives across steps: loaded before the first one, saved in checkpoints.";
  let arguments = (ins Exec_ValueAttr:$value, Exec_RegionAttr:$region, TypeAttr:$type);
  let assemblyFormat = "custom<Value>($value) `at` custom<Region>($region) `:` $type attr-dict";
}

def Exec_CallOp : Exec_Op<"call", [HasParent<"ComputeOp">]> {
  let summary = "Runs a body on rows, with a value and a region for each slot.";
  let description = [{
    `rows [8:16]` are the global samples of a unit function; update bodies count elements from 0. `overwrite` on an accumulated slot: the first
    contribution of the step in list order.
  }];
  let arguments = (ins I64Attr:$body, StrAttr:$name, DefaultValuedAttr<I64Attr, "-1">:$unit, StrAttr:$unit_name, I64Attr:$rows, I64Attr:$sample_base,
                   I64Attr:$instance_base, Exec_BindingArray:$slots);
  let assemblyFormat = "custom<Callee>($body, $name, $unit, $unit_name) `rows` custom<Rows>($sample_base, $rows) `` custom<Instance>($instance_base) "
                       "`` custom<Slots>($slots) attr-dict";
}

def Exec_ComputeOp : Exec_EntryOp<"compute",
    (ins Exec_TaskAttr:$task, DefaultValuedAttr<I64Attr, "-1">:$cell, DefaultValuedAttr<I64Attr, "-1">:$group),
    "custom<Task>($task, $cell, $group)", [NoRegionArguments, SingleBlock, NoTerminator]> {
  let summary = "F(units, samples), B or W of it, an update, a norm or the decision: runs its calls in order.";
  let regions = (region AnyRegion:$calls);
  let assemblyFormat = head # " attr-dict-with-keyword $calls";
}

def Exec_CopyOp : Exec_EntryOp<"copy", (ins Exec_ValueAttr:$value, Exec_RegionAttr:$from, Exec_RegionAttr:$to),
    "custom<Value>($value) `from` custom<Region>($from) `into` custom<Region>($to)"> {
  let summary = "Moves a value between two regions of the device.";
}

def Exec_SendOp : Exec_EntryOp<"send", (ins Exec_ValueAttr:$value, FlatSymbolRefAttr:$peer, Exec_RegionAttr:$region),
    "custom<Value>($value) `to` $peer `from` custom<Region>($region)"> {
  let summary = "One half of a transfer; the peer's `exec.receive` has the same id and value.";
}

def Exec_ReceiveOp : Exec_EntryOp<"receive", (ins Exec_ValueAttr:$value, FlatSymbolRefAttr:$peer, Exec_RegionAttr:$region),
    "custom<Value>($value) `from` $peer `into` custom<Region>($region)"> {
  let summary = "The other half of a transfer.";
}

def Exec_LoadInputOp : Exec_EntryOp<"load_input", (ins Exec_ValueAttr:$value, Exec_RegionAttr:$region),
    "custom<Value>($value) `into` custom<Region>($region)"> {
  let summary = "Rows of a graph input arrive from the host.";
}

def Exec_LoadScalarsOp : Exec_EntryOp<"load_scalars", (ins Exec_ValueAttr:$value, Exec_RegionAttr:$region),
    "custom<Value>($value) `into` custom<Region>($region)"> {
  let summary = "The step scalars arrive from the host; the device's sums are cleared.";
}

def Exec_AllGatherOp : Exec_EntryOp<"all_gather",
    (ins Exec_ValueAttr:$value, I64Attr:$group, TypeAttr:$type, Exec_ExtentArray:$shards, ArrayAttr:$readers, Exec_RegionAttr:$full,
     Exec_RegionAttr:$shard),
    "custom<Value>($value) `group` $group `:` $type `shards` custom<Extents>($shards) `readers` $readers `full` custom<Region>($full) `shard` custom<Region>($shard)"> {
  let summary = "Owners' shards of a state group become known to all readers.";
  let description = [{
    In place: an owner that reads holds its shard inside `full`. `full` is `0:0+0` on an owner that does not read, `shard` on a reader that owns nothing.
  }];
}

def Exec_ReduceScatterOp : Exec_EntryOp<"reduce_scatter",
    (ins Exec_ValueAttr:$value, I64Attr:$group, TypeAttr:$type, Exec_OrderAttr:$order, ArrayAttr:$contributors, Exec_ExtentArray:$shards,
     Exec_RegionAttr:$full, Exec_RegionAttr:$shard, OptionalAttr<Exec_RegionAttr>:$parts, OptionalAttr<I64Attr>:$chunk),
    "custom<Value>($value) `group` $group `:` $type custom<Order>($order) `of` $contributors `shards` custom<Extents>($shards) `full` custom<Region>($full) `shard` custom<Region>($shard)"> {
  let summary = "Contributors' accumulators are summed; each owner receives the sum over its extent.";
  let description = [{
    On a direct queue terms arrive in `parts` on owners, in rounds of `chunk` elements of every shard.
  }];
}

def Exec_AllReduceOp : Exec_EntryOp<"all_reduce",
    (ins Exec_ValueAttr:$from, Exec_ValueAttr:$to, TypeAttr:$type, Exec_OrderAttr:$order, ArrayAttr:$members, Exec_RegionAttr:$region,
     OptionalAttr<Exec_RegionAttr>:$parts),
    "custom<Value>($from) `becomes` custom<Value>($to) `:` $type custom<Order>($order) `of` $members `at` custom<Region>($region)"> {
  let summary = "Sum over members, in rank order; everyone gets the same bits.";
  let description = [{
    On a direct queue everybody's numbers arrive in `parts`.
  }];
}

def Exec_ReportOp : Exec_EntryOp<"report", (ins Exec_ValueAttr:$value, Exec_RegionAttr:$region),
    "custom<Value>($value) `at` custom<Region>($region)"> {
  let summary = "Makes a region visible to the host at the end of the step.";
}

#endif // ZORSE_DIALECT_EXEC_OPS
