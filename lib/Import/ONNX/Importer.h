// Abstract interpretation of the file's graph: every value becomes a constant, a number known before the step, a view of a value of the IR, or a sum
// over samples.
//
// Shapes are concrete while this runs: `rows` samples (the file's own batch where it is baked, another number where it is symbolic). This number is
// for structure alone: the axis of samples is a factor of views that is marked as such, its size is read as the Number B, and what is emitted has `?`
// instead.
#pragma once

#include "Facts.h"
#include "Graph.h"
#include "Lazy.h"
#include "Number.h"
#include "Operators.h"
#include "View.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Import/ONNX/Import.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <deque>
#include <map>
#include <set>
#include <string>

namespace zorse::onnx_import {

/// One summand factor * (sum over samples of numerator) of a loss.
struct LossSummand {
  Number factor = 1.0;
  mlir::Value numerator;      ///< tensor<?xfloat>
  int64_t elementsPerRow = 0; ///< numbers added into one numerator
};

/// A number that is a reduction over all samples of a step of what follows from inputs alone.
struct Count {
  mlir::Value numerator; ///< tensor<?xfloat>
  ReduceKind reduce = ReduceKind::Sum;
};

/// Uniform numbers that a node draws, on their way to a mask (DrawnMasks.cpp).
struct Drawn {
  int64_t instance = 0;
  double low = 0, high = 1;
  double kept = -1; ///< the probability of `true`, once they have been compared
};

struct Val {
  enum class Kind : uint8_t { Absent, Constant, Known, Graph, Sequence, Loss, Drawn };
  Kind kind = Kind::Absent;
  ElementKind type = ElementKind::Undefined;
  View view;
  LazyPtr lazy;                      ///< Constant
  std::vector<Number> numbers;       ///< Known: the elements that the view is of
  int64_t sampleStep = 0;            ///< Constant, integers: this times the number of the sample is added; axes of samples have stride 0
  mlir::Value value;                 ///< Graph
  Number scale = 1.0;                ///< Graph, floats: a factor not yet applied
  bool hides = false;                ///< may hold a row (last axis) in which every entry is masked
  bool countsSamples = false;        ///< Graph: ids for a GatherND whose first component is the number of the sample, written as 0
  std::vector<Val> elements;         ///< Sequence; Loss with a shape: summands, whose dimension 0 is that of the samples
  std::vector<LossSummand> summands; ///< Loss
  Drawn drawn;                       ///< Drawn

  bool isConstant() const { return kind == Kind::Constant; }
  bool isKnown() const { return kind == Kind::Known; }
  bool isGraph() const { return kind == Kind::Graph; }
  std::vector<int64_t> shape() const { return view.shape(); }
  int64_t rank() const { return view.rank(); }
  explicit operator bool() const { return kind != Kind::Absent; }
};

/// A loop axis of an op over several operands.
struct Axis {
  int64_t size = 1;
  bool sample = false;          ///< an operand differs between samples along it
  bool perSample = false;       ///< it has one element per sample
  int64_t dim = 0;              ///< of the broadcast shape
  int64_t order = 0;            ///< position in the file's order of axes
  std::vector<int64_t> strides; ///< one per operand
};

/// A factor of an operand in the order and grouping in which an op wants it.
using Groups = std::vector<FactorList>;

/// Whether the elements at offset + (positions of the factors) do not depend on factor `which`.
/// \param most  elements that are compared; of more it is taken that it does not
bool repeats(const Lazy &lazy, int64_t offset, const FactorList &factors, size_t which, int64_t most);

/// What is known about a constant of two axes: a causal mask, perhaps with a window (0: none), whose hidden floats are `fill`.
struct CausalPattern {
  bool causal = false;
  int64_t window = 0;
  double fill = 0;
};

/// What an initializer is used as, before anything is emitted. Frozen: a parameter that is not trained, an argument of its own name. Buffer: a
/// constant that stays an argument because of its size, or because its bytes are not there.
enum class InitializerRole : uint8_t { Constant, Trained, Frozen, Buffer };

/// start and step, where ids are start, start + step, ... with a step above 0.
std::optional<std::pair<int64_t, int64_t>> evenSteps(llvm::ArrayRef<int64_t> ids);

class Uses;
class Composition;

class Importer {
public:
  Importer(LoadedModel &model, FlatGraph &graph, const ImportOptions &options, mlir::MLIRContext &context);
  mlir::LogicalResult run(ImportedModel &result);

  struct Windows; ///< Windows.h

private:
  friend class Composition;
  class Einsum;     ///< EinsumOps.cpp
  class Recurrence; ///< RecurrentOps.cpp
  using Handler = mlir::LogicalResult (Importer::*)(const GraphNode &);
  struct Operator {
    OperatorRule rule;
    Handler handler;
  };
  struct OperatorTable {
    llvm::StringMap<Operator> operators;
    /// \param attributes  as OperatorRule reads them
    void add(std::initializer_list<const char *> names, size_t least, size_t most, const char *attributes, Handler handler);
  };
  // The operators of each file.
  static void addActivationOps(OperatorTable &table), addAttentionOps(OperatorTable &table), addComposedReductions(OperatorTable &table),
      addUnaryOps(OperatorTable &table), addElementwiseOps(OperatorTable &table), addIndexOps(OperatorTable &table),
      addStatisticOps(OperatorTable &table), addEinsumOps(OperatorTable &table), addRegroupOps(OperatorTable &table),
      addControlOps(OperatorTable &table), addConvolutionOps(OperatorTable &table), addPoolingOps(OperatorTable &table),
      addPickOps(OperatorTable &table), addScatterOps(OperatorTable &table), addRunningOps(OperatorTable &table), addLinearOps(OperatorTable &table),
      addReduceOps(OperatorTable &table), addLossOps(OperatorTable &table), addSequenceOps(OperatorTable &table), addViewOps(OperatorTable &table),
      addSliceOps(OperatorTable &table), addResizeOps(OperatorTable &table), addRecurrentOps(OperatorTable &table), addGridOps(OperatorTable &table),
      addFourierOps(OperatorTable &table), addDrawnOps(OperatorTable &table);
  static const Operator *operatorOf(const GraphNode &node); ///< null if it is not known

  // --- driver (Importer.cpp)
  /// Names in the options must be names in the file.
  mlir::LogicalResult checkNames();
  mlir::LogicalResult bindInputs();
  struct Input; ///< as the file declares it
  /// \param baked  samples that an input before fixed, and this one may fix for others; 0: none. \param bakedBy  its name
  mlir::LogicalResult readInput(const onnx::ValueInfo &info, Input &input, int64_t &baked, std::string &bakedBy);
  /// Adds the argument. \param group  samples of a row
  mlir::LogicalResult bindInput(Input &input, int64_t group);
  mlir::LogicalResult readInitializers(const std::vector<int> &wanted);
  mlir::LogicalResult interpret(GraphBody &body, const std::vector<int> &wanted);
  mlir::LogicalResult interpretNode(const GraphNode &node);
  mlir::LogicalResult applyHandler(const GraphNode &node); ///< the operands have values
  mlir::LogicalResult checkOperands(const GraphNode &node);
  mlir::LogicalResult chooseLoss(std::vector<int> &wanted);
  mlir::LogicalResult finish(const Val &loss, ImportedModel &result);
  /// Compares what was imported with the file's own nodes by numbers. \param before  the arguments of @model as handlers have met them
  mlir::LogicalResult checkAgainstFile(mlir::func::FuncOp function, llvm::ArrayRef<mlir::BlockArgument> before,
                                       const std::vector<WeightSource> &sources);
  mlir::LogicalResult error(const GraphNode &node, const llvm::Twine &message);
  mlir::LogicalResult error(const llvm::Twine &message);
  std::string describeOperands(const GraphNode &node) const;
  void warn(const std::string &message);

  // --- what is not supported (Limits.cpp)
  mlir::LogicalResult checkSupported(const std::vector<int> &wanted);

  // --- which initializers are trained (Classify.cpp)
  mlir::LogicalResult classifyInitializers(const std::vector<int> &wanted);
  mlir::LogicalResult restoreMerged(const Uses &uses);
  mlir::LogicalResult aliasStored();
  mlir::LogicalResult checkMissing(const std::set<std::string> &present, const std::vector<std::pair<int, const onnx::Tensor *>> &unknown,
                                   const Uses &uses);
  mlir::LogicalResult checkGradients();
  mlir::LogicalResult guessRoles(const std::vector<std::pair<int, const onnx::Tensor *>> &unknown, const Uses &uses);
  std::optional<TrainableChoice> forced(const std::string &name) const;
  bool isInFile(const std::string &name, const std::set<std::string> &present) const;
  /// Whether the flags freeze a parameter by this, and not a number of a formula that a pattern happens to match.
  bool isParameter(int value, const onnx::Tensor &tensor, const Uses &uses);
  /// Constant, or Buffer if it is large or its bytes are not there.
  InitializerRole asConstant(const onnx::Tensor &tensor);
  /// As doubles; empty if there are more than `most` or the bytes are not there.
  std::vector<double> elementsOf(const onnx::Tensor &tensor, int64_t most);

  // --- parameters (Parameters.cpp)
  void restoreTies(const std::set<const onnx::Tensor *> &own);
  void reportParameters();
  void reportChanged();
  void reportModes();
  Val parameter(const onnx::Tensor &tensor);
  /// Operand `index` as a running statistic: state that a step moves towards what it observes.
  mlir::FailureOr<mlir::Value> runningStatistic(const GraphNode &node, size_t index);
  /// The same where no step moves it: a frozen parameter, which --init may set.
  Val frozenStatistic(const GraphNode &node, size_t index);
  mlir::Value liftedBytes(mlir::RankedTensorType type, std::shared_ptr<std::vector<uint8_t>> bytes);

  // --- access to a node (NodeAccess.cpp)
  const Val &in(const GraphNode &node, size_t index) const;
  std::string nameOf(const GraphNode &node, size_t index) const;
  bool has(const GraphNode &node, size_t index) const { return static_cast<bool>(in(node, index)); }
  void out(const GraphNode &node, size_t index, Val value);
  bool isUsed(const GraphNode &node, size_t output) const;                             ///< by another node
  const onnx::Attribute *attribute(const GraphNode &node, llvm::StringRef name) const; ///< null if absent
  int64_t intAttribute(const GraphNode &node, llvm::StringRef name, int64_t otherwise) const;
  double floatAttribute(const GraphNode &node, llvm::StringRef name, double otherwise) const;
  std::string stringAttribute(const GraphNode &node, llvm::StringRef name, llvm::StringRef otherwise) const;
  std::optional<std::vector<int64_t>> intsAttribute(const GraphNode &node, llvm::StringRef name) const;
  /// All elements of a constant operand as integers, at most `limit`.
  std::optional<std::vector<int64_t>> constantInts(const Val &value, int64_t limit = 1 << 20) const;
  std::optional<std::vector<double>> constantFloats(const Val &value, int64_t limit = 1 << 20) const;
  std::optional<double> uniformValue(const Val &value) const;
  /// Axes from an attribute or from operand `index`; normalised to be non-negative.
  mlir::LogicalResult axesOf(const GraphNode &node, size_t index, int64_t rank, std::optional<std::vector<int64_t>> &axes);

  // --- views and emission (Emit.cpp, Axes.cpp)
  mlir::Type elementType(ElementKind kind) const;
  bool isSampled(const Val &value) const;
  static bool isSampled(mlir::Value value);
  static int64_t perRow(mlir::Value value);
  Val wrap(mlir::Value value, ElementKind type, std::vector<int64_t> shape) const; ///< contiguous; the shape has `rows` for `?`
  Val constantOf(ElementKind kind, LazyPtr lazy, std::vector<int64_t> shape) const;
  Val scalar(ElementKind kind, double value) const;
  template <typename Op, typename... Args> mlir::Value create(Args &&...args) {
    auto op = Op::create(builder, location, std::forward<Args>(args)...);
    return merge(op);
  }
  mlir::Value merge(mlir::Operation *op);
  mlir::Value createNamed(llvm::StringRef name, mlir::ValueRange operands, mlir::Type type);
  /// The operand as a tensor of the groups' sizes (in front `?` if `sampled`).
  mlir::Value materialise(const Val &value, const Groups &groups, bool sampled);
  mlir::Value materialiseConstant(const Val &value, FactorList &factors, llvm::SmallVectorImpl<int64_t> &at);
  mlir::Value cut(mlir::Value base, int64_t offset, const FactorList &factors);
  mlir::Value applyScale(mlir::Value value, const Number &scale);
  mlir::Value broadcastTo(mlir::Value value, llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<int64_t> shape);
  mlir::Value reshapeTo(mlir::Value value, llvm::ArrayRef<int64_t> shape);
  mlir::Value splat(double value, mlir::RankedTensorType type);
  /// One group per axis of the view, in its order, without the sample axis; size-1 axes are dropped if `dropOnes`.
  Groups groupsOf(const View &view, bool dropOnes) const;
  mlir::Value materialise(const Val &value, bool dropOnes = true);
  Val copied(const Val &value);
  mlir::FailureOr<Val> reshaped(const GraphNode &node, const Val &value, const std::vector<int64_t> &shape);
  /// Brings operands to common axes, broadcasting as ONNX does. Fixes operands whose rows are baked copies.
  mlir::LogicalResult align(const GraphNode &node, std::vector<Val> &operands, std::vector<Axis> &axes, std::vector<int64_t> &shape);
  mlir::LogicalResult dropSampleCopies(const GraphNode &node, const Val &operand, size_t index, const std::vector<Axis> &axes, size_t along);
  Val compressed(const Val &value) const; ///< a constant whose repeating axes have stride 0
  void orderAxes(const std::vector<Val> &operands, std::vector<Axis> &axes) const;
  struct Loop {
    std::vector<std::vector<const Axis *>> groups; ///< emitted dimensions, without the sample axis
    bool sampled = false;
    std::vector<int64_t> shape; ///< of the IR type, with kDynamic
  };
  Loop makeLoop(const std::vector<Axis> &axes) const;
  mlir::Value operandOf(const Val &value, size_t index, const Loop &loop);
  /// The view of a value emitted over `loop` (plus `inner` sizes behind), with the broadcast shape.
  Val resultOf(mlir::Value value, ElementKind type, const std::vector<Axis> &axes, const Loop &loop, const std::vector<int64_t> &shape) const;
  mlir::LogicalResult emitElementwise(const GraphNode &node, std::vector<Val> operands, ElementKind type,
                                      llvm::function_ref<mlir::Value(mlir::ValueRange, mlir::RankedTensorType)> body);
  Val foldElementwise(std::vector<Val> operands, ElementKind type, Kernel kernel);

  /// Dropout of what does not depend on samples.
  mlir::LogicalResult dropConstant(const GraphNode &node, const Val &x, double ratio, int64_t instance);

  // --- random numbers that become masks (DrawnMasks.cpp)
  mlir::LogicalResult drawUniform(const GraphNode &node, View view, ElementKind type);
  /// \param kept  probability of `true`; keepsSmall: which is where numbers are small
  mlir::LogicalResult compareDrawn(const GraphNode &node, Val drawn, double kept, bool keepsSmall);
  /// Floats 0 and 1 of what has been compared.
  mlir::LogicalResult drawMask(const GraphNode &node, const Val &mask);
  /// Applies an operator one of whose operands is Drawn; none: its handler deals with them.
  std::optional<mlir::LogicalResult> applyToDrawn(const GraphNode &node);

  // --- 16-bit floats (NarrowFloats.cpp)
  /// A float value rounded to a 16-bit type, and so is its gradient; others are as they are.
  Val rounded(const Val &value, ElementKind type);
  /// Rounds the results of a node whose types have 16 bits, as PyTorch rounds what every operator returns.
  void roundResults(const GraphNode &node);

  // --- numbers known before the step (KnownOps.cpp), lengths and numbers of samples (Lengths.cpp)
  Number samplesPerRow() const; ///< B / the number of rows, as a number
  Number extentOf(const FactorList &list) const;
  /// A scalar.
  Val knownScalar(ElementKind kind, const Number &number) const;
  /// A constant or Known value as Known; an error of the node where it has too many different elements.
  mlir::FailureOr<Val> asKnown(const GraphNode &node, const Val &value);
  /// The one number of all elements of a constant or Known value.
  std::optional<Number> uniformNumber(const Val &value) const;
  /// Numbers in the order of the axes, repeats of samples counted once.
  std::vector<Number> numbersOf(const Val &known) const;
  /// The count that reduces `numerator`.
  Number countOf(mlir::Value numerator, ReduceKind reduce);
  /// Whether a value follows from inputs alone: no parameter, no random number.
  bool isFromInputs(mlir::Value value) const { return !weighted.contains(value); }
  /// Applies the handler of a node to other operands.
  mlir::LogicalResult applyWith(const GraphNode &node, std::vector<Val> operands);
  static Val castKnown(Val known, ElementKind type);
  static Val simplified(Val known); ///< a constant, where all numbers are
  /// Numbers row-major over the axes of `like`, whose repeats over samples stay.
  static Val knownOver(ElementKind kind, std::vector<Number> numbers, const View &like);
  /// A Known value as a value of the graph.
  mlir::FailureOr<Val> asGraph(const GraphNode &node, const Val &known);
  /// A number as a scalar of the graph.
  mlir::Value knownValue(const Number &number);
  /// Applies an operator one of whose operands is Known; none: its handler deals with them.
  std::optional<mlir::LogicalResult> applyToKnown(const GraphNode &node);
  mlir::LogicalResult foldNumbers(const GraphNode &node);
  std::optional<Number> numberOf(const GraphNode &node, llvm::ArrayRef<Number> operands, llvm::ArrayRef<ElementKind> types);
  mlir::LogicalResult reduceKnown(const GraphNode &node, const Val &x, const std::vector<bool> &reduced, bool keep);
  mlir::FailureOr<Val> joinedKnown(const GraphNode &node, const std::vector<Val> &parts, int64_t axis, const std::vector<int64_t> &shape);
  mlir::FailureOr<Val> pickedFromKnown(const GraphNode &node, const Val &x, int64_t axis, const std::vector<int64_t> &picked);
  /// Applies an operator one of whose operands holds the numbers of samples; none: its handler deals with them.
  std::optional<mlir::LogicalResult> applyToSampleNumbers(const GraphNode &node);
  /// An axis as an operand gives its length: a number, or a multiple of B, whose factors are the samples and what is inside of them.
  struct Length {
    int64_t size = 0;
    bool perSample = false;
    FactorList repeats; ///< what repeats an element so often
  };
  /// Operand `index` as lengths; an error of the node where they are not known.
  mlir::FailureOr<std::vector<Length>> lengthsOf(const GraphNode &node, size_t index);
  Length plainLength(const GraphNode &node, int64_t size) const;
  mlir::FailureOr<Length> lengthOf(const GraphNode &node, const Number &number);
  /// A constant whose elements are one number, over the axes of a view.
  Val fillOver(ElementKind kind, double value, View view) const;
  /// Refuses an axis that may be one of samples and is not marked so.
  mlir::LogicalResult checkExtent(const GraphNode &node, const FactorList &list);
  mlir::LogicalResult rangeOfSamples(const GraphNode &node); ///< a Range one of whose bounds is Known
  mlir::LogicalResult sliceByNumbers(const GraphNode &node); ///< a Slice one of whose bounds is Known
  /// Bounds of a file for any batch must not depend on how many samples there are.
  mlir::LogicalResult checkBounds(const GraphNode &node, const Val &x, int64_t axis, int64_t start, int64_t end);
  static int64_t countSampleFactors(const View &view);
  mlir::LogicalResult checkTold(const GraphNode &node, const Val &result, const std::vector<bool> &told);
  void choosePlaceholder();
  bool rowsOpen(const Val &mask, bool boolean, bool openWhen);

  // --- handlers
#define ZORSE_ONNX_HANDLER(name) mlir::LogicalResult name(const GraphNode &node);
  ZORSE_ONNX_HANDLER(onConstant)
  ZORSE_ONNX_HANDLER(onConstantOfShape)
  ZORSE_ONNX_HANDLER(onIdentity)
  ZORSE_ONNX_HANDLER(onShape)
  ZORSE_ONNX_HANDLER(onSize)
  ZORSE_ONNX_HANDLER(onRange)
  ZORSE_ONNX_HANDLER(onReshape)
  ZORSE_ONNX_HANDLER(onFlatten)
  ZORSE_ONNX_HANDLER(onTranspose)
  ZORSE_ONNX_HANDLER(onSqueeze)
  ZORSE_ONNX_HANDLER(onUnsqueeze)
  ZORSE_ONNX_HANDLER(onExpand)
  ZORSE_ONNX_HANDLER(onTile)
  ZORSE_ONNX_HANDLER(onSlice)
  ZORSE_ONNX_HANDLER(onSplit)
  ZORSE_ONNX_HANDLER(onSplitToSequence)
  ZORSE_ONNX_HANDLER(onSequenceAt)
  ZORSE_ONNX_HANDLER(onSequenceConstruct)
  ZORSE_ONNX_HANDLER(onConcatFromSequence)
  ZORSE_ONNX_HANDLER(onConcat)
  ZORSE_ONNX_HANDLER(onPad)
  ZORSE_ONNX_HANDLER(onTrilu)
  ZORSE_ONNX_HANDLER(onGather)
  ZORSE_ONNX_HANDLER(onGatherElements)
  ZORSE_ONNX_HANDLER(onGatherND)
  ZORSE_ONNX_HANDLER(onScatterND)
  ZORSE_ONNX_HANDLER(onRunning)
  ZORSE_ONNX_HANDLER(onIf)
  ZORSE_ONNX_HANDLER(onCast)
  ZORSE_ONNX_HANDLER(onCastLike)
  ZORSE_ONNX_HANDLER(onUnary)
  ZORSE_ONNX_HANDLER(onBinary)
  ZORSE_ONNX_HANDLER(onVariadic)
  ZORSE_ONNX_HANDLER(onCompare)
  ZORSE_ONNX_HANDLER(onLogic)
  ZORSE_ONNX_HANDLER(onWhere)
  ZORSE_ONNX_HANDLER(onClip)
  ZORSE_ONNX_HANDLER(onIsNaN)
  ZORSE_ONNX_HANDLER(onPow)
  ZORSE_ONNX_HANDLER(onActivation)
  ZORSE_ONNX_HANDLER(onDropout)
  ZORSE_ONNX_HANDLER(onRandomUniform)
  ZORSE_ONNX_HANDLER(onRandomUniformLike)
  ZORSE_ONNX_HANDLER(onBernoulli)
  ZORSE_ONNX_HANDLER(onMatMul)
  ZORSE_ONNX_HANDLER(onGemm)
  ZORSE_ONNX_HANDLER(onConv)
  ZORSE_ONNX_HANDLER(onSoftmax)
  ZORSE_ONNX_HANDLER(onNorm)
  ZORSE_ONNX_HANDLER(onAttention)
  ZORSE_ONNX_HANDLER(onRotary)
  ZORSE_ONNX_HANDLER(onReduce)
  ZORSE_ONNX_HANDLER(onComposedReduce)
  ZORSE_ONNX_HANDLER(onComposedActivation)
  ZORSE_ONNX_HANDLER(onPRelu)
  ZORSE_ONNX_HANDLER(onMean)
  ZORSE_ONNX_HANDLER(onLpNormalization)
  ZORSE_ONNX_HANDLER(onArgExtremum)
  ZORSE_ONNX_HANDLER(onTopK)
  ZORSE_ONNX_HANDLER(onHardmax)
  ZORSE_ONNX_HANDLER(onScatterElements)
  ZORSE_ONNX_HANDLER(onOneHot)
  ZORSE_ONNX_HANDLER(onInstanceNorm)
  ZORSE_ONNX_HANDLER(onGroupNorm)
  ZORSE_ONNX_HANDLER(onBatchNorm)
  ZORSE_ONNX_HANDLER(onMeanVarianceNorm)
  ZORSE_ONNX_HANDLER(onEinsum)
  ZORSE_ONNX_HANDLER(onDepthToSpace)
  ZORSE_ONNX_HANDLER(onSpaceToDepth)
  ZORSE_ONNX_HANDLER(onCol2Im)
  ZORSE_ONNX_HANDLER(onIsInf)
  ZORSE_ONNX_HANDLER(onEyeLike)
  ZORSE_ONNX_HANDLER(onResize)
  ZORSE_ONNX_HANDLER(onGridSample)
  ZORSE_ONNX_HANDLER(onFourier)
  ZORSE_ONNX_HANDLER(onRecurrent)
  ZORSE_ONNX_HANDLER(onLoop)
  ZORSE_ONNX_HANDLER(onScan)
  ZORSE_ONNX_HANDLER(onMaxPool)
  ZORSE_ONNX_HANDLER(onAveragePool)
  ZORSE_ONNX_HANDLER(onGlobalPool)
  ZORSE_ONNX_HANDLER(onConvTranspose)
  ZORSE_ONNX_HANDLER(onCrossEntropy)
#undef ZORSE_ONNX_HANDLER

  /// An elementwise operator on floats; an error of the node where there is none.
  mlir::Value unaryOnFloats(const GraphNode &node, mlir::Value x, mlir::RankedTensorType type);
  /// The part of `binary` that needs no arithmetic on elements, or moves scales past it; none: it does not apply.
  std::optional<mlir::LogicalResult> scaledBinary(const GraphNode &node, const std::string &op, const Val &a, const Val &b);
  /// The mask of an Attention as a tensor; null where it hides nothing, or where `attention` can say it.
  mlir::FailureOr<mlir::Value> attentionMask(const GraphNode &node, const Val &q, int64_t keys, AttentionOptions &attention);
  /// x [rows, positions, heads * channels] as [rows, heads, positions, channels]. \param attributes  that give the number of heads
  mlir::FailureOr<Val> splitHeads(const GraphNode &node, const Val &x, int64_t heads, const char *attributes);
  /// Sets the node's result, which has positions before heads here: heads joined with channels if it is `flat`, or in front.
  mlir::LogicalResult outHeads(const GraphNode &node, Val result, bool flat);
  /// Rows of a table by position.
  mlir::FailureOr<Val> rotaryTableAt(const GraphNode &node, const Val &table, const Val &ids);
  Val joinedConstants(const std::vector<Val> &parts, int64_t axis, const std::vector<int64_t> &shape);
  mlir::FailureOr<Val> joinedActivations(const GraphNode &node, const std::vector<Val> &parts, int64_t axis);
  /// What `joined` holds, whose dimensions are the loop's with the joined axis before group `place`.
  static Val viewOfJoined(mlir::Value joined, ElementKind type, int64_t rank, int64_t axis, size_t place, const std::vector<Axis> &axes,
                          const Loop &loop);
  mlir::LogicalResult normStatistics(const GraphNode &node, const Val &x, int64_t axis);
  bool isMatrix(const Val &value) const; ///< only its last two dimensions hold different elements, none of samples
  mlir::FailureOr<Val> productOfConstants(const GraphNode &node, const Val &a, const Val &b);
  /// x [lead..., K] times a matrix; the transposed product if the matrix stands on the left (`swap`).
  mlir::FailureOr<Val> timesMatrix(const GraphNode &node, const Val &x, const Val &w, bool swap);
  mlir::FailureOr<Val> productOfActivations(const GraphNode &node, const Val &a, const Val &b);
  /// Which dimensions go, how many elements make one, and what is left.
  struct Reduction {
    std::vector<bool> reduced;
    int64_t count = 1;
    bool keep = false;
    std::vector<int64_t> shape;
  };
  mlir::LogicalResult reduceConstant(const GraphNode &node, const Val &x, const Reduction &reduction);
  mlir::LogicalResult reduceSamples(const GraphNode &node, Val x, int64_t rank); ///< to a loss, or to a number that is known before the step
  mlir::LogicalResult extremumOfSamples(const GraphNode &node, const Val &x, int64_t rank);
  /// What repeats for every sample and holds none: constants, values of parameters.
  mlir::LogicalResult reduceRepeats(const GraphNode &node, Val x, Reduction reduction);
  mlir::LogicalResult mixes(const GraphNode &node, const llvm::Twine &what);
  /// A function of sums over samples that is not affine in them.
  mlir::LogicalResult notAffine(const GraphNode &node, const llvm::Twine &what);
  mlir::LogicalResult reduceActivation(const GraphNode &node, Val x, const Reduction &reduction);
  mlir::FailureOr<Val> pickedFromConstant(const GraphNode &node, const Val &x, int64_t axis, const std::vector<int64_t> &picked);
  /// Splits the picked axis of `value` into the ids' `moving` factors and puts their repeats between.
  mlir::LogicalResult spreadAxis(const GraphNode &node, Val &value, const Val &ids, int64_t axis, const FactorList &moving);
  /// Elements `picked` of one axis of a value of the IR.
  mlir::FailureOr<Val> pickedFromGraph(const GraphNode &node, const Val &x, int64_t axis, const std::vector<int64_t> &picked,
                                       std::optional<int64_t> padding);
  mlir::LogicalResult pickElements(const GraphNode &node, Val x, const Val &ids, int64_t axis);
  /// Ids of which those below 0 count from the end of `size` entries. A constant is checked.
  mlir::FailureOr<Val> countedFromFront(const GraphNode &node, const Val &ids, int64_t size);
  /// Interprets the body of a node and returns its outputs.
  mlir::LogicalResult interpretBody(const GraphNode &node, GraphBody &body, const std::vector<Val> &operands, std::vector<Val> &results);
  /// Along a new axis.
  mlir::FailureOr<Val> stacked(const GraphNode &node, std::vector<Val> parts, int64_t axis);
  /// Reads the attributes of a convolution or pooling over x; `kernel`: extents of its windows.
  mlir::LogicalResult readWindows(const GraphNode &node, const Val &x, std::vector<int64_t> kernel, Windows &windows);
  /// Refuses kernels of more slices than can be unrolled.
  mlir::LogicalResult checkSlices(const GraphNode &node, const Windows &windows);
  mlir::LogicalResult tiledConvolution(const GraphNode &node, const Val &x, const Val &w);
  struct Resizing; ///< ResizeOps.cpp
  mlir::LogicalResult readResizing(const GraphNode &node, const Val &x, Resizing &resizing);
  mlir::LogicalResult readPooling(const GraphNode &node, Windows &windows);
  Val convolved(Composition &make, const Val &x, const Val &w, int64_t groups, const Windows &windows);
  Val groupedProduct(Composition &make, const Val &x, const Val &w);
  /// A batch norm by the statistics of groups of samples.
  mlir::LogicalResult normalisedByGroups(const GraphNode &node);
  mlir::LogicalResult checkChannels(const GraphNode &node, const Val &x, int64_t weights);
  Val runningSumOfConstant(Val x, int64_t axis);
  std::optional<mlir::LogicalResult> gatherRanges(const GraphNode &node, const Val &x, const Val &ids, int64_t depth);
  mlir::LogicalResult gatherPlaces(const GraphNode &node, const Val &x, const Val &ids, int64_t batch, int64_t depth);
  /// The row-major number of every id [..., components] among places of these sizes.
  mlir::FailureOr<Val> placeNumbers(const GraphNode &node, const Val &ids, const std::vector<int64_t> &sizes);
  Val scatteredAlongLast(Composition &make, const Val &data, const Val &ids, const Val &updates, const std::string &reduction);
  /// The constant x with updates at the places that ids [..., depth] name.
  mlir::FailureOr<Val> scatteredConstant(const GraphNode &node, const Val &x, const Val &updates, const std::vector<int64_t> &ids, int64_t depth);
  mlir::LogicalResult scatterPlaces(const GraphNode &node, int64_t depth); ///< a ScatterND by any ids
  mlir::LogicalResult gatherPerSample(const GraphNode &node, const Val &x, const Val &ids, int64_t axis);
  mlir::LogicalResult gatherByConstant(const GraphNode &node, const Val &x, Val ids, int64_t axis);
  /// An embedding. The table is unsampled with the picked axis in front.
  mlir::LogicalResult gatherByData(const GraphNode &node, Val x, const Val &ids, int64_t axis);
  /// Results of the function and their attributes, from the loss.
  mlir::LogicalResult describeTerms(const Val &loss, llvm::SmallVectorImpl<mlir::Value> &results,
                                    llvm::SmallVectorImpl<mlir::DictionaryAttr> &resultAttributes);
  void describeCounts(llvm::ArrayRef<mlir::Operation *> order, llvm::SmallVectorImpl<mlir::Value> &results,
                      llvm::SmallVectorImpl<mlir::DictionaryAttr> &resultAttributes);
  /// Names, shifts and bounds of the inputs, by argument.
  std::vector<mlir::NamedAttrList> describeInputs(llvm::ArrayRef<mlir::Operation *> order);
  /// Picks within each sample, written as picks among the elements of all.
  std::optional<mlir::LogicalResult> gatherWithinSamples(const GraphNode &node, const Val &x, const Val &ids, int64_t axis);
  /// Replaces a part of ids that counts the samples, which no value of the IR can, where the ids are for picks alone. \returns whether it did
  bool dropSampleNumbers(const GraphNode &node, std::vector<Val> &parts, int64_t axis) const;
  /// Whether nothing but the shape of the node's result is read.
  bool isReadForShape(const GraphNode &node) const;
  /// Along the axis of samples: what is joined becomes an axis outside of the samples.
  mlir::LogicalResult joinBySamples(const GraphNode &node, std::vector<Val> parts, int64_t axis);
  mlir::LogicalResult concatenate(const GraphNode &node, const std::vector<Val> &parts, int64_t axis);
  /// Whether a sample of a value is known before the step: it follows from inputs, and `place` is 0, the first, or -1, the last.
  bool isKnownOfSample(const Val &value, int64_t axis, int64_t place) const;
  /// That sample of the value, whose axis of samples is of size 1 then: a number of the step for each element.
  mlir::LogicalResult takeSample(const GraphNode &node, Val &value, int64_t axis, int64_t place);
  void takeStrided(Val &value, int64_t axis, int64_t start, int64_t step, int64_t count);
  mlir::LogicalResult take(const GraphNode &node, Val &value, int64_t axis, int64_t start, int64_t step, int64_t count);
  mlir::LogicalResult binary(const GraphNode &node, const std::string &op, const Val &a, const Val &b);
  double attentionScale(double scale, int64_t channels) const;
  mlir::FailureOr<Val> product(const GraphNode &node, Val a, Val b);
  /// A number as terms of the loss: sums of inputs as they are, others as the mean over samples that all have it.
  void addNumber(const Number &number, std::vector<LossSummand> &terms);
  /// A scalar without samples, such as a penalty of parameters' squares, as a term of the loss: the mean over samples that all have it. Losses are of
  /// the last unit, which so reads every parameter of the penalty.
  mlir::LogicalResult addPenalty(const GraphNode &node, const Val &scalar, double sign, std::vector<LossSummand> &terms);
  mlir::LogicalResult lossBinary(const GraphNode &node, const std::string &op, const Val &a, const Val &b);
  mlir::LogicalResult sumOfLosses(const GraphNode &node, const std::string &op, const Val &a, const Val &b);
  /// Sums over the samples in dimension 0 of each, as a loss.
  Val sumsOf(std::vector<Val> each);
  mlir::LogicalResult reduceToSums(const GraphNode &node, const Val &x, const std::vector<bool> &reduced, bool keep);
  mlir::FailureOr<std::vector<Val>> summandsOf(const GraphNode &node, const Val &value);
  mlir::LogicalResult joinSums(const GraphNode &node);
  mlir::LogicalResult addSums(const GraphNode &node, const Val &a, const Val &b, double sign);
  mlir::FailureOr<Val> movedSum(const GraphNode &node, Composition &make, const Val &each);
  /// Applies an operator to sums over samples that have a shape; none: its handler does.
  std::optional<mlir::LogicalResult> applyToSums(const GraphNode &node);
  mlir::FailureOr<Val> dotOfSamples(const GraphNode &node, const Val &a, Val b);
  /// Appends a summand of a sum to the summands of a loss.
  mlir::LogicalResult addSummand(const GraphNode &node, const Val &value, double sign, std::vector<LossSummand> &summands);
  /// Times or divided by a number, or by a scalar of parameters.
  mlir::LogicalResult scaledLoss(const GraphNode &node, Val loss, const Val &other, bool divides);
  /// What a fixed batch of N makes of a constant factor of a loss: N and N times the elements of a sample stand for samples.
  mlir::FailureOr<Number> factorInFile(const GraphNode &node, const Number &constant, bool divides, const LossSummand &summand);
  /// One over what the mean of a cross-entropy divides by: all labels, or the weights of those that are not ignored.
  mlir::FailureOr<Number> meanFactor(const GraphNode &node, mlir::Value labels, mlir::Value weight, std::optional<int64_t> ignore,
                                     int64_t elementsPerRow);
  mlir::FailureOr<Val> crossEntropy(const GraphNode &node, Val logits, Val labels, Val weights, std::optional<int64_t> ignore,
                                    const std::string &reduction);
  Val castTo(const Val &value, ElementKind type);
  mlir::Value sumPerSample(mlir::Value value); ///< [?, ...] to [?]
  bool dependsOnParameter(mlir::Value value) const { return tainted.contains(value); }
  std::optional<Val> addedLoss(mlir::LogicalResult &status);

  /// Gradients stop at what a node made from a detach yields.
  mlir::LogicalResult detach(const GraphNode &node, Val &value);
  /// The row of an embedding's table that has no gradient.
  std::optional<int64_t> paddingOf(const GraphNode &node, const Val &table);
  mlir::LogicalResult checkPadding();

  LoadedModel &model;
  FlatGraph &graph;
  Facts facts;
  std::set<std::string> padded; ///< tables whose padding has been honoured
  const ImportOptions &options;
  int64_t tooLarge = 0; ///< elements of a constant that was not computed
  mlir::MLIRContext &context;
  mlir::OpBuilder builder;
  mlir::Location location;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::Block *block = nullptr;
  std::vector<mlir::DictionaryAttr> argumentAttributes;

  int lossNumber = -1; ///< the value that is the loss; -1: it is not in the file
  int64_t rows = 0;    ///< the size of the sample factor in views; never a number of the graph
  bool rowsBaked = false;
  std::vector<Count> counts;
  llvm::DenseSet<mlir::Value> weighted; ///< values that follow from other than inputs: of weights and of random numbers
  std::deque<Val> values;               ///< by value number; handlers keep references while others are added
  std::vector<std::string> inputNames;  ///< by argument
  std::map<std::string, unsigned> inputArguments;
  std::map<int, const onnx::Tensor *> initializers; ///< by value number
  std::map<const onnx::Tensor *, InitializerRole> roles;
  std::map<const onnx::Tensor *, Val> parameters;
  std::vector<std::unique_ptr<onnx::Tensor>> restored;              ///< parameters taken apart again
  std::map<const onnx::Tensor *, const onnx::Tensor *> transposeOf; ///< matrices that the exporter wrote twice
  std::map<const onnx::Tensor *, const onnx::Tensor *> rawSources;  ///< where their bytes are
  std::vector<WeightSource> weights;                                ///< by argument - number of inputs, in order of creation
  std::map<unsigned, size_t> weightOfArgument;
  llvm::DenseSet<mlir::Value> tainted;
  llvm::DenseMap<size_t, llvm::SmallVector<mlir::Operation *, 1>> emitted; ///< by structural hash
  std::map<std::tuple<const Lazy *, int64_t, int64_t, int64_t, int64_t, int64_t>, CausalPattern> maskCache;
  std::map<std::pair<const Lazy *, int64_t>, bool> openCache;
  std::vector<LazyPtr> keepAlive; ///< keys of the caches
  std::map<std::string, std::string> labelsOfLoss;
  struct LossInfo {
    mlir::Value labels;
    mlir::Value logits;
    std::optional<int64_t> ignore;
    int64_t classes = 0;
  };
  std::vector<LossInfo> losses;
  int64_t dropouts = 0, drawnMasks = 0;
  std::map<int64_t, bool> keepsSmallNumbers; ///< by instance of Drawn
  std::set<const onnx::Tensor *> statistics; ///< running ones
  bool guessedSingleRow = false;
  std::vector<std::string> frozenNorms; ///< batch norms that normalise by running statistics which do not move
  bool normsMayTrain = false;           ///< --batch-norm-rows would train some of them
  int64_t inertDropouts = 0;
  std::vector<std::string> warnings, notes;
  std::vector<std::string> foldedParameters;
};

} // namespace zorse::onnx_import
