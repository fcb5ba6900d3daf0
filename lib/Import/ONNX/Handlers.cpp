// Every operator that the importer knows: each file lists those it handles, behind their handlers, with operands and attributes. An attribute that
// does not stand there is an error wherever it occurs (Limits.cpp).
#include "Operators.h"

using namespace zorse;
using namespace zorse::onnx_import;

void OperatorTable::add(std::initializer_list<const char *> names, size_t least, size_t most, const char *attributes, Handler handler) {
  for (const char *name : names)
    operators.try_emplace(name, Operator{OperatorRule(least, most, attributes), handler});
}

const Operator *zorse::onnx_import::operatorOf(const GraphNode &node) {
  static const OperatorTable table = [] {
    OperatorTable table;
    for (auto addOps :
         {addActivationOps, addAttentionOps, addComposedReductions, addUnaryOps,   addElementwiseOps, addIndexOps,   addStatisticOps, addEinsumOps,
          addRegroupOps,    addControlOps,   addConvolutionOps,     addPoolingOps, addPickOps,        addScatterOps, addRunningOps,   addLinearOps,
          addReduceOps,     addLossOps,      addSequenceOps,        addViewOps,    addSliceOps,       addResizeOps,  addRecurrentOps, addGridOps,
          addFourierOps,    addDrawnOps})
      addOps(table);
    return table;
  }();
  auto found = table.operators.find(node.domain.empty() ? node.op : node.domain + "." + node.op);
  return found == table.operators.end() ? nullptr : &found->second;
}
