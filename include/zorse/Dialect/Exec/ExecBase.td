// The exec dialect and its attributes: the vocabulary of one device's program.
#ifndef ZORSE_DIALECT_EXEC_BASE
#define ZORSE_DIALECT_EXEC_BASE

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"

def Exec_Dialect : Dialect {
  let name = "exec";
  let cppNamespace = "::zorse::exec";
  let summary = "One device's program of a training step, as text.";
  let description = [{
    The readable form of `Program` in `runtime/schema/bundle.proto`: one `exec.program` per module, one op per entry of the program, in the order of
    the global list of the step. Nothing here computes: bodies are named by index, memory is static (`arena:offset+bytes`), and every region says
    which logical value it is expected to hold. Names (of values, units, bodies and access modes) are for people, not part of a program.
    The text is for reading, and `lib/Verify` checks programs; of these ops only MLIR's generic form is read.

    ```mlir
    exec.program @"t4:0" device 1 of [@"a100:0", @"t4:0"] planned 36864 {
      exec.arena device 36864
      exec.queue compute0
      exec.queue receive0
      exec.receive 7 activation 3 "h.3" [8:16] from @"a100:0" into 0:4096+8192 on receive0 in forward
      exec.compute 9 F cell 2 on compute0 in forward after [receive0:0] {
        exec.call 4 "head.forward" unit 4 "head" rows [8:16]
(read activation 3 "h.3" [8:16] at 0:4096+8192,
           write loss 4 [8:16] at 0:12288+32)
      }
    }
    ```
  }];
  let useDefaultAttributePrinterParser = 1;
}

//===----------------------------------------------------------------------===//
// Enumerations: the numbers are those of bundle.proto.
//===----------------------------------------------------------------------===//

class Exec_Enum<string name, string summary, list<I32EnumAttrCase> cases> : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::zorse::exec";
  let genSpecializedAttr = 0;
}

def Exec_MemoryKind : Exec_Enum<"MemoryKind", "kind of memory of an arena", [
  I32EnumAttrCase<"Device", 1, "device">, I32EnumAttrCase<"PinnedHost", 2, "pinned_host">, I32EnumAttrCase<"Host", 3, "host">,
  I32EnumAttrCase<"Nvme", 4, "nvme">]>;

def Exec_QueueKind : Exec_Enum<"QueueKind", "what a queue serves", [
  I32EnumAttrCase<"Compute", 1, "compute">, I32EnumAttrCase<"Send", 2, "send">, I32EnumAttrCase<"Receive", 3, "receive">,
  I32EnumAttrCase<"Collective", 4, "collective">, I32EnumAttrCase<"HostToDevice", 5, "to_device">,
  I32EnumAttrCase<"DeviceToHost", 6, "to_host">, I32EnumAttrCase<"Io", 7, "io">, I32EnumAttrCase<"Direct", 8, "direct">]>;

def Exec_Phase : Exec_Enum<"Phase", "part of the step", [
  I32EnumAttrCase<"Load", 1, "load">, I32EnumAttrCase<"Gather", 2, "gather">, I32EnumAttrCase<"Forward", 3, "forward">,
  I32EnumAttrCase<"Backward", 4, "backward">, I32EnumAttrCase<"Reduce", 5, "reduce">, I32EnumAttrCase<"Commit", 6, "commit">,
  I32EnumAttrCase<"Update", 7, "update">, I32EnumAttrCase<"Report", 8, "report">]>;

def Exec_ValueKind : Exec_Enum<"ValueKind", "what bytes mean", [
  I32EnumAttrCase<"None", 0, "none">, I32EnumAttrCase<"Parameters", 1, "parameters">, I32EnumAttrCase<"Gradients", 2, "gradients">,
  I32EnumAttrCase<"ReducedGradients", 3, "reduced_gradients">, I32EnumAttrCase<"Moments", 4, "moments">,
  I32EnumAttrCase<"Activation", 5, "activation">, I32EnumAttrCase<"ActivationGradient", 6, "activation_gradient">,
  I32EnumAttrCase<"Saved", 7, "saved">, I32EnumAttrCase<"Input", 8, "input">, I32EnumAttrCase<"Scalars", 9, "scalars">,
  I32EnumAttrCase<"Loss", 10, "loss">, I32EnumAttrCase<"Sums", 11, "sums">, I32EnumAttrCase<"GlobalSum", 12, "global_sum">,
  I32EnumAttrCase<"OptimizerStep", 13, "optimizer_step">, I32EnumAttrCase<"Deferred", 14, "deferred">,
  I32EnumAttrCase<"ParameterCopy", 15, "parameter_copy">]>;

def Exec_Task : Exec_Enum<"Task", "what a compute entry does", [
  I32EnumAttrCase<"F", 1, "F">, I32EnumAttrCase<"B", 2, "B">, I32EnumAttrCase<"W", 3, "W">, I32EnumAttrCase<"R", 4, "R">,
  I32EnumAttrCase<"Norm", 5, "norm">, I32EnumAttrCase<"Decide", 6, "decide">, I32EnumAttrCase<"Update", 7, "update">,
  I32EnumAttrCase<"SumLoss", 8, "sum_loss">, I32EnumAttrCase<"Cast", 9, "cast">, I32EnumAttrCase<"ScaleSeeds", 10, "scale_seeds">]>;

def Exec_Order : Exec_Enum<"Order", "order of the additions of a reduction", [
  I32EnumAttrCase<"Ranked", 1, "ranked">, I32EnumAttrCase<"Transport", 2, "transport">]>;

def Exec_Access : Exec_Enum<"Access", "how a body uses a slot", [
  I32EnumAttrCase<"Unknown", 0, "use">, I32EnumAttrCase<"Read", 1, "read">, I32EnumAttrCase<"Write", 2, "write">,
  I32EnumAttrCase<"Update", 3, "update">, I32EnumAttrCase<"Accumulate", 4, "add">]>;

class Exec_EnumAttr<EnumInfo info, string mnemonic> : EnumAttr<Exec_Dialect, info, mnemonic>;
def Exec_MemoryKindAttr : Exec_EnumAttr<Exec_MemoryKind, "memory_kind">;
def Exec_PhaseAttr : Exec_EnumAttr<Exec_Phase, "phase">;
def Exec_TaskAttr : Exec_EnumAttr<Exec_Task, "task">;
def Exec_OrderAttr : Exec_EnumAttr<Exec_Order, "order">;

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

class Exec_Attr<string name, string attrMnemonic> : AttrDef<Exec_Dialect, name> {
  let mnemonic = attrMnemonic;
  let assemblyFormat = "`<` params `>`";
}

def Exec_QueueAttr : Exec_Attr<"Queue", "queue"> {
  let summary = "A queue of this device by kind and id: `compute0`, `send2`.";
  let parameters = (ins EnumParameter<Exec_QueueKind>:$kind, "int64_t":$id);
}

def Exec_RegionAttr : Exec_Attr<"Region", "region"> {
  let summary = "A byte range of an arena: `arena:offset+bytes`.";
  let parameters = (ins "int64_t":$arena, "int64_t":$offset, "int64_t":$bytes);
  let assemblyFormat = "`<` $arena `` `:` `` $offset `` `+` `` $bytes `>`";
}

def Exec_ValueAttr : Exec_Attr<"Value", "value"> {
  let summary = "What a region holds: kind, id, an optional name for people, cut, range, version.";
  let description = [{
    `activation 3 "h.3" [8:16]` is samples 8 to 15 of value 3; `parameters 2 "head" [0:4096] version 1` are elements of state group 2 after this
    step's update. `cut` is the first unit whose contributions an activation gradient holds, the moment of `moments`, the term of `loss`.
  }];
  let parameters = (ins EnumParameter<Exec_ValueKind>:$kind, "int64_t":$id, "int64_t":$cut, "int64_t":$begin, "int64_t":$end, "int64_t":$version,
                    StringRefParameter<"for people">:$name);
}

def Exec_WaitAttr : Exec_Attr<"Wait", "wait"> {
  let summary = "A finished entry: position in a queue, of this step or the previous one: `compute0:12`, `send1:3 previous`.";
  let parameters = (ins "QueueAttr":$queue, "int64_t":$position, "bool":$previousStep);
}

def Exec_BindingAttr : Exec_Attr<"Binding", "binding"> {
  let summary = "One slot of a call: access, value and region: `read activation 3 [8:16] at 0:4096+8192`.";
  let parameters = (ins EnumParameter<Exec_Access>:$access, "bool":$overwrite, "ValueAttr":$value, "RegionAttr":$region);
}

def Exec_ExtentAttr : Exec_Attr<"Extent", "extent"> {
  let summary = "A member's share of a group in elements: `@a 0:512`.";
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$member, "int64_t":$begin, "int64_t":$end);
}

def Exec_WaitArray : TypedArrayAttrBase<Exec_WaitAttr, "waits">;
def Exec_BindingArray : TypedArrayAttrBase<Exec_BindingAttr, "slots of a call">;
def Exec_ExtentArray : TypedArrayAttrBase<Exec_ExtentAttr, "shares of a group">;

#endif // ZORSE_DIALECT_EXEC_BASE
