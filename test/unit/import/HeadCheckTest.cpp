// Tests the check of the imported loss against the file's nodes: it accepts correct imports and
// detects faults injected into factors and operations.
#include "LossGraph.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <gtest/gtest.h>

#include <cstdio>

using namespace zorse;
using namespace zorse::test;

namespace {

constexpr const char *kWrong = "is not imported as the file has it";

/// Losses with numbers of the batch and of inputs in many places.
const std::vector<std::string> &losses() {
  static const std::vector<std::string> list{
      "loss = Identity m",
      "loss = Div s fB",
      "c = Div f1 fN; loss = Mul s c",
      "c = Mul fB f2; loss = Div s c",
      "c = Add fB f1; loss = Div s c",
      "c = Sqrt fB; loss = Div s c",
      "c = Div iB i2; d = Cast c; loss = Div s d",
      "c = Div x fB; d = Mul c c; loss = ReduceSum d",
      "c = Mul l fB; loss = ReduceMean c",
      "loss = Div s fCount",
      "c = Max fCount f1; loss = Div s c",
      "c = ReduceSum weights; d = Div fCount c; loss = Mul m d",
      "c = ReduceMax weights; loss = Div m c",
      "c = ReduceSum weights; d = Div weights c; e = Mul d l; loss = ReduceSum e",
      "c = ReduceMean features; loss = Mul m c",
      "a = Add s m; loss = Div a fB",
      "a = Sub s m; b = Div s fCount; loss = Add a b",
      "p = Mul w w; q = ReduceSum p; r = Div q fB; loss = Add m r",
      "p = Mul w w; q = ReduceSum p; r = Mul m q; loss = Div r fB",
      "p = Mul w w; q = ReduceMean p; r = Exp q; a = Div m r; loss = Add a q",
      "f = Reshape squares vAll; loss = ReduceMean f",
      "h = ReduceMean features; g = Mul h l; loss = ReduceSum g",
      "loss = MatMul weights l",
      "c = Sin fB; loss = Mul m c",
      "a = ReduceSum squares v0; loss = ReduceMean a",
      "a = Softmax weights; b = Mul a l; loss = ReduceSum b",
      "a = ReduceMean weights; b = Sub weights a; c = Mul b b; d = ReduceSum c; e = Sqrt d; loss = "
      "Div s e",
      "a = Gather weights i0; loss = Div s a",
      "r = Range i0 iB i1; c = Mod r i2; e = Cast c; d = Mul e l; loss = ReduceSum d",
      "c = Sub l weights; d = Mul c c; e = Mul d weights; g = ReduceSum e; h = ReduceSum weights; "
      "loss = Div g h",
  };
  return list;
}

/// \param large  x is an operand of a matmul that is too large for a check of the whole graph
Outcome imported(const std::string &nodes, const ImportOptions &options = {}, bool large = false) {
  LossGraph graph;
  if (!large)
    return graph.importWith(nodes, "loss", options);
  graph.weight("up", {4, 30000});
  graph.weight("down", {30000, 4});
  std::string text = "xUp = MatMul x up; x_ = MatMul xUp down; squares_ = Mul x_ x_; m_ = "
                     "ReduceMean squares_; s_ = ReduceSum squares_; "
                     "l_ = ReduceMean squares_ inner; ";
  llvm::SmallVector<llvm::StringRef> words;
  llvm::StringRef(nodes).split(words, ' ');
  for (llvm::StringRef word : words) {
    const llvm::StringRef name = word.rtrim(';');
    const bool replaced = name == "x" || name == "squares" || name == "m" || name == "s" ||
                          name == "l";
    text += name.str() + (replaced ? "_" : "") + word.drop_front(name.size()).str() + " ";
  }
  return graph.importWith(text, "loss", options);
}

std::string notes(const Outcome &outcome) {
  std::string text;
  for (const std::string &note : outcome.model.notes)
    text += note + "\n";
  return text;
}

bool readsSamples(const std::string &factors) { return factors.find('B') != std::string::npos; }
bool readsCounts(const std::string &factors) {
  for (size_t i = 0; i + 1 < factors.size(); ++i)
    if (factors[i] == 'n' && isdigit(static_cast<unsigned char>(factors[i + 1])))
      return true;
  return false;
}

/// Whether a fault changes a factor.
bool changes(HeadDamage damage, const std::string &factors) {
  const size_t last = factors.rfind("; ");
  switch (damage) {
  case HeadDamage::Drop:
    return factors.substr(last == std::string::npos ? 0 : last + 2) != "1";
  case HeadDamage::Double:
    return true;
  case HeadDamage::Seven:
  case HeadDamage::SamplesOfPart:
    return readsSamples(factors);
  case HeadDamage::CountsOfPart:
    return readsCounts(factors);
  default:
    return false;
  }
}

/// The operations of @model with results other than 0: a fault doubles the result of one of them at
/// a time.
std::vector<mlir::Operation *> floatOperations(mlir::ModuleOp module) {
  std::vector<mlir::Operation *> list;
  module.walk([&](mlir::Operation *op) {
    if (op->getNumResults() == 1 && op->getParentOfType<mlir::func::FuncOp>() &&
        mlir::isa<mlir::FloatType>(mlir::getElementTypeOrSelf(op->getResult(0).getType())) &&
        zorse::splatValue(op->getResult(0)) != 0.0)
      list.push_back(op);
  });
  return list;
}

void doubleResult(mlir::Operation *op) {
  mlir::OpBuilder builder(op->getContext());
  builder.setInsertionPointAfter(op);
  auto twice =
      mlir::arith::AddFOp::create(builder, op->getLoc(), op->getResult(0), op->getResult(0));
  op->getResult(0).replaceAllUsesExcept(twice.getResult(), twice);
}

} // namespace

TEST(HeadCheck, PassesWhatIsRight) {
  for (const std::string &nodes : losses())
    for (const bool large : {false, true}) {
      Outcome outcome = imported(nodes, {}, large);
      EXPECT_TRUE(outcome.ok) << nodes << ": " << outcome.text;
      EXPECT_TRUE(contains(notes(outcome),
                           "the loss is the file's for 2, 3 and 5 samples in every division ("))
          << nodes << ": " << notes(outcome);
      EXPECT_TRUE(contains(notes(outcome),
                           large ? "nodes from where samples are combined" : "the whole graph"))
          << nodes << ": " << notes(outcome);
    }
}

TEST(HeadCheck, FindsMistakesInFactors) {
  int found = 0, planted = 0;
  for (const std::string &nodes : losses()) {
    const std::string factors = test::factors(imported(nodes));
    for (const HeadDamage damage : {HeadDamage::Drop, HeadDamage::Double, HeadDamage::Seven,
                                    HeadDamage::SamplesOfPart, HeadDamage::CountsOfPart})
      for (const bool large : {false, true}) {
        ImportOptions options;
        options.headDamage = damage;
        Outcome outcome = imported(nodes, options, large);
        if (!changes(damage, factors)) {
          EXPECT_TRUE(outcome.ok) << nodes << ", mistake " << static_cast<int>(damage) << ": "
                                  << outcome.text;
          continue;
        }
        EXPECT_FALSE(outcome.ok) << nodes << ", factors " << factors << ", mistake "
                                 << static_cast<int>(damage) << (large ? ", large" : "");
        EXPECT_TRUE(outcome.ok || contains(outcome.text, kWrong)) << outcome.text;
        ++planted;
        found += !outcome.ok;
      }
  }
  std::printf("mistakes in factors found: %d of %d\n", found, planted);
  EXPECT_GE(planted, 150);
}

TEST(HeadCheck, FindsMistakesInOperations) {
  int found = 0, planted = 0;
  for (const std::string &nodes : losses())
    for (size_t which = 0; !contains(nodes, "Softmax"); ++which) { // Softmax does not depend on
                                                                   // shifts and factors
      ImportOptions options;
      bool done = false;
      options.alter = [&](mlir::ModuleOp module) {
        std::vector<mlir::Operation *> operations = floatOperations(module);
        done = which >= operations.size();
        if (!done)
          doubleResult(operations[which]);
      };
      Outcome outcome = imported(nodes, options);
      if (done)
        break;
      ++planted;
      found += !outcome.ok;
      EXPECT_FALSE(outcome.ok) << nodes << ", operation " << which << " doubled";
      EXPECT_TRUE(outcome.ok || contains(outcome.text, kWrong)) << outcome.text;
    }
  std::printf("mistakes in operations found: %d of %d\n", found, planted);
  EXPECT_GE(planted, 100);
}

TEST(HeadCheck, NamesLossNumbersAndTheWayOut) {
  ImportOptions options;
  options.headDamage = HeadDamage::Double;
  Outcome outcome = imported("loss = Div s fB", options);
  EXPECT_ERROR(outcome, "the loss 'loss' is not imported as the file has it: for 2 samples of "
                        "random numbers the file's nodes yield ");
  EXPECT_ERROR(outcome, "(1/B times a sum)");
  EXPECT_ERROR(outcome, "--trust-import");
  options.trustImport = true;
  Outcome trusted = imported("loss = Div s fB", options);
  EXPECT_TRUE(trusted.ok) << trusted.text;
  EXPECT_TRUE(contains(notes(trusted), "the loss is not checked against the file: --trust-import"))
      << notes(trusted);
}

// Neither the file's logits nor the imported ones are computed, but the counting of labels is
// checked.
TEST(HeadCheck, OfACrossEntropyOfLargeLogitsChecksWhatIsMadeOfIt) {
  const auto outcome = [](HeadDamage damage) {
    LossGraph graph;
    graph.weight("wide", {4, 70000});
    graph.ints("flat", {-1, 70000});
    graph.node("MatMul", {"x", "wide"}, {"wideLogits"});
    graph.node("Reshape", {"wideLogits", "flat"}, {"logits"});
    graph.node("Reshape", {"labels", "vAll"}, {"flatLabels"});
    Graph::attribute(graph.node("SoftmaxCrossEntropyLoss", {"logits", "flatLabels"}, {"loss"}),
                     "ignore_index", -100);
    ImportOptions options;
    options.headDamage = damage;
    return graph.importWith("", "loss", options);
  };
  Outcome right = outcome(HeadDamage::None);
  ASSERT_TRUE(right.ok) << right.text;
  EXPECT_TRUE(
      contains(notes(right),
               "2, 3 and 5 samples in every division (1 nodes from where samples are combined)"))
      << notes(right);
  for (const HeadDamage damage : {HeadDamage::Drop, HeadDamage::Double, HeadDamage::CountsOfPart})
    EXPECT_ERROR(outcome(damage), kWrong);
}

// For a fully masked row, exp(x - log sum) gives 1 for every element.
TEST(HeadCheck, PassesRowsOfWhichAllIsMasked) {
  for (const std::string &of : {"Softmax", "LogSoftmax"}) {
    LossGraph graph;
    graph.real("hidden", -3e38F);
    Outcome outcome = graph.importWith("a = Add x hidden; b = " + of +
                                       " a; c = Mul b x; d = ReduceSum c; loss = Div d fB");
    ASSERT_TRUE(outcome.ok) << of << outcome.text;
    EXPECT_TRUE(contains(notes(outcome), "2, 3 and 5 samples in every division"))
        << of << notes(outcome);
  }
}

TEST(HeadCheck, AnOperatorThatIsNotKnownIsSaid) {
  Outcome outcome =
      imported("c = Div x fB; n = GlobalAveragePool c; d = Mul n n; loss = ReduceSum d");
  ASSERT_TRUE(outcome.ok) << outcome.text;
  EXPECT_TRUE(contains(notes(outcome),
                       "the loss is not checked against the file: operator "
                       "GlobalAveragePool (node 'n_n') is not known to the evaluator"))
      << notes(outcome);
}
