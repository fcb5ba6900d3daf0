// The faults that ptx-faults injects in addition to removed synchronizations. Patterns match
// registers by kind, so that they also fit other versions of LLVM. A fault with a pattern that does
// not match counts as not found.
#include "PtxFaults.h"

using namespace zorse::conformance;

namespace {

using Bugs = std::vector<PtxFault>;

void addGuardsAndIntegers(Bugs &bugs) {
  const PtxSubject dropout = suiteSubject("dropout", "f32", 17),
                   gather = suiteSubject("gather and take_along_dim", "f32", 17);
  bugs.push_back({"a guard is left out", dropout, R"(@%p\d+ bra \t\$\w+;)", ""});
  bugs.push_back({"a guard is turned round", dropout, R"(@(%p\d+) bra)", "@!$1 bra"});
  bugs.push_back({"a guard is off by one", dropout, R"(setp\.ge\.s64)", "setp.gt.s64"});
  bugs.push_back(
      {"random bits are compared with a sign", dropout, R"(setp\.lt\.u64)", "setp.lt.s64"});
  bugs.push_back({"random bits are shifted with a sign", dropout,
                  R"(shr\.u64( \t%rd\d+, %rd\d+, 27))", "shr.s64$1"});
  bugs.push_back({"a product's upper half has a sign", dropout,
                  R"(mul\.hi\.u64( \t%rd\d+, %rd\d+, -3))", "mul.hi.s64$1"});
  bugs.push_back({"a shift is off by one", dropout, R"((shr\.u64 \t%rd\d+, %rd\d+, )8;)", "$1 9;"});
  bugs.push_back({"a difference has its operands swapped", dropout,
                  R"(sub\.s64 \t(%rd\d+), (%rd\d+), (%rd\d+))", "sub.s64 \t$1, $3, $2"});
  bugs.push_back({"a choice has its operands swapped", dropout,
                  R"(selp\.f32 \t(%r\d+), (%r\d+), (%r\d+),)", "selp.f32 \t$1, $3, $2,"});
  bugs.push_back({"a choice has another predicate", dropout,
                  R"((selp\.f32 \t%r\d+, 0f00000000, %r\d+, )%p3)", "$1%p2"});
  bugs.push_back(
      {"a field of the step's scalars is the next one", dropout, R"(\[(%rd\d+)\+8\])", "[$1+16]"});
  bugs.push_back({"an element is loaded with half its width", gather, R"(ld\.global\.nc\.b32)",
                  "ld.global.nc.b16"});
  bugs.push_back({"an element is stored with half its width", gather,
                  R"(st\.global\.b32 \t(.*), (%r\d+);)",
                  "{ .reg .b16 low, high; mov.b32 {low, high}, $2; st.global.b16 $1, low; }"});
  bugs.push_back({"an address is an element off", gather, R"(st\.global\.b32 \t\[(%rd\d+)\])",
                  "st.global.b32 \t[$1+4]"});
  bugs.push_back({"an address is a byte off", gather,
                  R"(ld\.global\.nc\.b32 \t(%r\d+), \[(%rd\d+)\])",
                  "ld.global.nc.b32 \t$1, [$2+1]"});
  bugs.push_back(
      {"a register is not written", gather, R"(add\.rn\.f32 \t(%r\d+), (%r\d+), (%r\d+);)", ""});
}

void addRoundings(Bugs &bugs, bool convertsBF16) {
  const PtxSubject narrow = suiteSubject("activations", "bf16", 17),
                   activations = suiteSubject("activations", "f32", 17);
  const PtxSubject roots = suiteSubject("layer norm", "f32", 11),
                   adam = suiteSubject("adam", "f32", 17);
  if (convertsBF16)
    bugs.push_back({"a bf16 is cut instead of rounded", narrow, R"(cvt\.rn\.bf16(x2)?\.f32)",
                    "cvt.rz.bf16$1.f32"});
  else
    bugs.push_back({"a bf16 is cut instead of rounded", narrow,
                    R"((add\.s32 \t%r\d+, %r\d+, )32767;)", "$1 0;"});
  bugs.push_back({"a quotient is cut instead of rounded", suiteSubject("functions", "f32", 17),
                  R"(div\.rn\.f32)", "div.rz.f32"});
  bugs.push_back(
      {"a reciprocal is cut instead of rounded", activations, R"(rcp\.rn\.f32)", "rcp.rz.f32"});
  bugs.push_back(
      {"a floor cuts toward zero", activations, R"(cvt\.rmi\.f32\.f32)", "cvt.rzi.f32.f32"});
  bugs.push_back(
      {"a constant has another last bit", activations, R"(0f3FCC422A)", "0f3FCC422B", 2});
  bugs.push_back({"a root is cut instead of rounded", roots, R"(sqrt\.rn\.f32)", "sqrt.rz.f32"});
  bugs.push_back(
      {"an fma is cut instead of rounded", activations, R"(fma\.rn\.f32)", "fma.rz.f32"});
  bugs.push_back({"an fma adds another register", activations,
                  R"(fma\.rn\.f32 \t(%r\d+), (%r\d+), (%r\d+), (0f\w+))",
                  "fma.rn.f32 \t$1, $2, $4, $3"});
  bugs.push_back(
      {"a number of steps is read as f32", adam, R"(cvt\.rn\.f32\.f64)", "cvt.rz.f32.f64"});
  bugs.push_back({"a sum is a difference", adam, R"(add\.rn\.f32)", "sub.rn.f32"});
}

void addSharing(Bugs &bugs) {
  const PtxSubject norm = suiteSubject("layer norm", "f32", 22),
                   crossEntropy = suiteSubject("cross-entropy", "bf16", 23);
  bugs.push_back({"an exchange flips another lane", norm,
                  R"((shfl\.sync\.bfly\.b32 \t%r\d+, %r\d+), 16,)", "$1, 8,"});
  bugs.push_back({"an exchange is among half of the lanes", norm,
                  R"((shfl\.sync\.bfly\.b32 .*), -1;)", "$1, 65535;"});
  bugs.push_back({"the tail of a row is read beyond its end", norm,
                  R"(setp\.lt\.u64 \t(%p\d+), (%rd\d+), 1031;)", "setp.lt.u64 \t$1, $2, 1032;"});
  bugs.push_back({"a sum of a warp is left out", norm, R"(ld\.shared\.v4\.b32 (.*)\+16\])",
                  "ld.shared.v4.b32 $1]"});
  bugs.push_back({"a barrier is in a branch", norm,
                  R"((\$L__BB\d+_2:\n(?:.*\n){0,3}?)\tbar\.sync \t0;)", "\tbar.sync \t0;\n$1"});
  bugs.push_back({"all lanes store the sum of a warp", norm, R"(@%p2 bra \t\$\w+;)", ""});
  bugs.push_back({"an id is loaded with half its width", crossEntropy,
                  R"(ld\.global\.nc\.b64 \t(%rd\d+))", "ld.global.nc.b32 \t$1"});
  bugs.push_back({"bf16 is widened by a bit too few", crossEntropy,
                  R"((shl\.b32 \t%r\d+, %r\d+, )16)", "$1 15"});
}

void addBlocks(Bugs &bugs) {
  const PtxSubject sums = columnSums(), scatter = suiteSubject("scatter-add", "f32", 3);
  bugs.push_back({"a loop ends one turn late", sums, R"(setp\.lt\.u64)", "setp.le.u64", 1});
  bugs.push_back({"a block counts to another end", sums,
                  R"(atom\.global\.inc\.u32 \t(%r\d+), \[(%rd\d+)\], (%r\d+);)",
                  "atom.global.inc.u32 \t$1, [$2], 1;"});
  bugs.push_back({"parts of other blocks are read as constant", sums, R"(ld\.volatile\.global)",
                  "ld.global.nc"});
  bugs.push_back({"a part is read from its neighbor", sums,
                  R"((ld\.volatile\.global\.b32 \t%r\d+, \[%rd\d+)\])", "$1+128]"});
  bugs.push_back({"another part of shared memory is read", sums,
                  R"((ld\.shared\.b32 \t%r\d+, \[%rd\d+)\+128\])", "$1+256]"});
  bugs.push_back({"the first id is left out", scatter, R"(setp\.ge\.s64)", "setp.gt.s64"});
  bugs.push_back({"lanes with another id vote", scatter, R"(and\.pred)", "or.pred"});
}

void addTensorCores(Bugs &bugs) {
  const PtxSubject attention = attentionSubject(64, "bf16", "scale = 0.125 : f64, causal");
  bugs.push_back({"a maximum is a minimum", attention, R"(max\.f32)", "min.f32"});
  bugs.push_back({"a row beyond the last is copied", attention,
                  R"(setp\.lt\.u32 \t(%p\d+), (%r\d+), 134;)", "setp.le.u32 \t$1, $2, 134;"});
  bugs.push_back({"a copy has half of the bytes", attention,
                  R"(cp\.async\.cg(\.shared\.global .*), 16, (%r\d+))", "cp.async.ca$1, 8, $2"});
  bugs.push_back({"a copy goes to another place", attention,
                  R"(cp\.async\.cg\.shared\.global \[(%rd\d+)\+2048\])",
                  "cp.async.cg.shared.global [$1+4096]"});
  bugs.push_back({"a wait leaves a group in flight", attention, R"(cp\.async\.wait_group \t0)",
                  "cp.async.wait_group \t1"});
  bugs.push_back({"a matrix is not transposed", attention,
                  R"(ldmatrix\.sync\.aligned\.m8n8\.x4\.trans)", "ldmatrix.sync.aligned.m8n8.x4"});
  bugs.push_back({"a matrix is loaded from another place", attention,
                  R"((ldmatrix\.sync\.aligned\.m8n8\.x4\.shared\.b16 .*)\+2048\])", "$1+2064]"});
  bugs.push_back({"a product has the other type", attention, R"(bf16\.bf16\.f32)", "f16.f16.f32"});
  bugs.push_back({"a product has its factor's halves swapped", attention,
                  R"((mma\.sync.*\n.*\n.*\n\t\t)\{(%r\d+), (%r\d+)\})", "$1{$3, $2}"});
  bugs.push_back({"a product's sum is dropped", attention,
                  R"((mma\.sync.*\n\t\t\{)(%r\d+), (%r\d+))", "$1$3, $2"});
  bugs.push_back({"a causal mask is off by one", attention,
                  R"(setp\.gt\.s32 \t(%p\d+), (%r\d+), 0;)", "setp.ge.s32 \t$1, $2, 0;"});
  bugs.push_back({"numbers are packed in the other order", attention,
                  R"(cvt\.rn\.bf16x2\.f32 \t(%r\d+), (%r\d+), (%r\d+))",
                  "cvt.rn.bf16x2.f32 \t$1, $3, $2"});
  bugs.push_back({"packed numbers are cut instead of rounded", attention, R"(cvt\.rn\.bf16x2\.f32)",
                  "cvt.rz.bf16x2.f32", 5});
  bugs.push_back({"one lane takes no part in an exchange", attention,
                  R"(shfl\.sync\.bfly\.b32 \t(%r\d+), (%r\d+), 1, 31, -1;)",
                  "shfl.sync.bfly.b32 \t$1, $2, 1, 31, 2147483647;"});
  const PtxSubject spread = spreadAttention();
  bugs.push_back(
      {"no exponential is flushed", spread, R"(ex2\.approx\.ftz\.f32)", "ex2.approx.f32", 0});
}

} // namespace

std::vector<PtxFault> zorse::conformance::ptxFaults(bool hasTensorCores) {
  Bugs bugs;
  addGuardsAndIntegers(bugs);
  addRoundings(bugs, hasTensorCores);
  addSharing(bugs);
  addBlocks(bugs);
  if (hasTensorCores)
    addTensorCores(bugs);
  return bugs;
}
