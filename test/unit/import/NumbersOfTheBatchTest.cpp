// Tests the number of samples in losses. For every way in which a file writes it, the factor of a
// term is a formula of B, or the node is refused.
#include "LossGraph.h"

#include <gtest/gtest.h>

#include <limits>

using namespace zorse;
using namespace zorse::test;

namespace {

std::string factorOf(const std::string &nodes, const std::string &loss = "loss") {
  return factors(LossGraph().importWith(nodes, loss));
}

} // namespace

TEST(NumbersOfTheBatch, InEverySpelling) {
  EXPECT_EQ(factorOf("", "m"), "1/(24*B)");
  EXPECT_EQ(factorOf("loss = Div s fB"), "1/B");
  EXPECT_EQ(factorOf("loss = Div s fN"), "1/(24*B)");
  EXPECT_EQ(factorOf("c = Div f1 fN; loss = Mul s c"), "1/(24*B)");
  EXPECT_EQ(factorOf("c = Reciprocal fN; loss = Mul c s"), "1/(24*B)");
  EXPECT_EQ(factorOf("c = Mul fB f2; loss = Div s c"), "1/(2*B)");
  EXPECT_EQ(factorOf("c = Add fB f1; loss = Div s c"), "1/(B + 1)");
  EXPECT_EQ(factorOf("c = Sub fB f1; loss = Div s c"), "1/(B - 1)");
  EXPECT_EQ(factorOf("c = Sqrt fB; loss = Div s c"), "1/sqrt(B)");
  EXPECT_EQ(factorOf("c = Pow fB f2; loss = Div s c"), "1/(B*B)");
  EXPECT_EQ(factorOf("c = Pow fB fHalf; loss = Mul m c"), "sqrt(B)/(24*B)");
  EXPECT_EQ(factorOf("loss = Mul m fB"), "1/24");
  EXPECT_EQ(factorOf("c = Max fB f1; loss = Div s c"), "1/B");
  EXPECT_EQ(factorOf("c = Div iB i2; d = Cast c; loss = Div s d"), "1/trunc(B/2)");
  EXPECT_EQ(factorOf("c = Mul iB i2; d = Div c i2; e = Cast d; loss = Div s e"), "1/B");
  EXPECT_EQ(factorOf("p = ReduceProd shape; c = Cast p; loss = Div s c"), "1/(24*B)");
  EXPECT_EQ(factorOf("c = Div l fB; loss = ReduceSum c"), "1/(24*B)");
  EXPECT_EQ(factorOf("c = Div x fB; d = Mul c c; loss = ReduceSum d"), "1/(B*B)");
  EXPECT_EQ(factorOf("c = Mul l fB; loss = ReduceMean c"), "1/24");
  EXPECT_EQ(factorOf("c = Unsqueeze iB v0; d = ConstantOfShape c; e = Add d f1; n = ReduceSum e; "
                     "loss = Div s n"),
            "1/B");
  EXPECT_EQ(factorOf("loss = Neg m"), "-1/(24*B)");
}

TEST(NumbersOfTheBatch, CountsAreFactors) {
  EXPECT_EQ(factorOf("loss = Div s fCount"), "1/n0");
  EXPECT_EQ(factorOf("c = Max fCount f1; loss = Div s c"), "1/max(n0, 1)");
  EXPECT_EQ(factorOf("c = Clip fCount f1; loss = Div s c"), "1/max(n0, 1)");
  EXPECT_EQ(factorOf("c = Add fCount fSmall; loss = Div s c"), "1/(9.999999974752427e-07 + n0)");
  EXPECT_EQ(factorOf("c = Sqrt fCount; loss = Div s c"), "1/sqrt(n0)");
  EXPECT_EQ(factorOf("c = ReduceSum weights; d = Div fCount c; loss = Mul m d"), "n0/(24*B*n1)");
  EXPECT_EQ(factorOf("c = ReduceMax weights; loss = Div m c"), "1/(24*B*n0)");
  EXPECT_EQ(factorOf("c = ReduceSum weights; d = Div weights c; e = Mul d l; loss = ReduceSum e"),
            "1/(24*n0)");
  EXPECT_EQ(factorOf("f = Reshape features vAll; c = ReduceMax f; loss = Div m c"), "1/(24*B*n0)");
  EXPECT_EQ(factorOf("c = ReduceMax features v0; d = ReduceSum c; loss = Mul m d"),
            "n0/(24*B) + n1/(24*B) + n2/(24*B)");
  EXPECT_EQ(factorOf("c = ReduceMean fKept; loss = Div s c"), "6*B/n0");
  EXPECT_EQ(factorOf("c = ReduceMean features; loss = Mul m c"), "n0/(72*B*B)");
}

TEST(NumbersOfTheBatch, SumsOfTerms) {
  EXPECT_EQ(factorOf("a = Add s m; loss = Div a fB"), "1/B; 1/(24*B*B)");
  EXPECT_EQ(factorOf("a = Sub s m; b = Div s fCount; loss = Add a b"), "1; -1/(24*B); 1/n0");
  EXPECT_EQ(factorOf("p = Mul w w; q = ReduceSum p; r = Div q fB; loss = Add m r"),
            "1/(24*B); 1/(B*B)");
  EXPECT_EQ(factorOf("p = Mul w w; q = ReduceSum p; r = Mul m q; loss = Div r fB"), "1/(24*B*B)");
  EXPECT_EQ(factorOf("p = Mul w w; q = ReduceMean p; r = Exp q; a = Div m r; loss = Add a q"),
            "1/(24*B); 1/(44*B)");
  EXPECT_EQ(factorOf("loss = Add m fB"), "1/(24*B); 1");
  EXPECT_EQ(factorOf("c = ReduceMean features; loss = Add m c"), "1/(24*B); 1/(3*B)");
}

TEST(NumbersOfTheBatch, TensorsOfSums) {
  EXPECT_EQ(factorOf("a = ReduceSum squares v0; loss = ReduceMean a"), "1/24");
  EXPECT_EQ(factorOf("u = Unsqueeze m v0; v = Unsqueeze s v0; a = Concat u v; b = Div a fB; loss = "
                     "ReduceSum b"),
            "1/(24*B*B); 1/B");
  EXPECT_EQ(factorOf("u = Unsqueeze m v0; v = Unsqueeze s v0; a = Concat u v; loss = Gather a i1"),
            "1/(24*B); 1");
  EXPECT_EQ(factorOf("loss = MatMul weights l"), "1/24");
  EXPECT_EQ(factorOf("c = Sin fB; loss = Mul m c"), "1/(24*B)")
      << "a function that text does not have is a value of the graph";
  EXPECT_EQ(factorOf("a = ReduceMean features v0; b = ReduceSum a; loss = Mul m b"),
            "n0/(24*B*B) + n1/(24*B*B) + n2/(24*B*B)");
}

TEST(NumbersOfTheBatch, Lengths) {
  const std::string flat = "f = Reshape squares vAll; ";
  EXPECT_EQ(factorOf(flat + "loss = ReduceMean f"), "1/(24*B)");
  // KL divergence of flattened rows, batchmean: the rows are B * T.
  EXPECT_EQ(factorOf("c = Mul iB i3; d = Mul c i2; e = Unsqueeze d v0; t = Concat e vAll; f = "
                     "Reshape squares t; g = Shape f; h = Gather g i0; r = Cast "
                     "h; u = ReduceSum f; loss = Div u r"),
            "1/(6*B)");
  EXPECT_EQ(factorOf("h = ReduceMean features; g = Mul h l; loss = ReduceSum g"), "n0/(72*B)");
  EXPECT_EQ(factorOf("e = Unsqueeze iB v0; g = Expand f1 e; h = ReduceSum g; loss = Div s h"),
            "1/B");
  EXPECT_EQ(factorOf("e = Unsqueeze iB v0; g = Expand f1 e; h = Mul g l; loss = ReduceSum h"),
            "1/24");
  const std::string twice = "k = Concat squares squares; e = Unsqueeze iB v0; ";
  EXPECT_EQ(factorOf(twice + "g = Slice k v0 e; loss = ReduceMean g"), "1/(24*B)");
  EXPECT_EQ(
      factorOf(twice + "g = Shape k; h = Gather g i0; r = Cast h; u = ReduceSum k; loss = Div u r"),
      "1/(2*B)");
  EXPECT_ERROR(LossGraph().importWith("e = Unsqueeze iB v0; v6 = Unsqueeze i1 v0; g = Slice "
                                      "squares v0 e v6; loss = ReduceMean g"),
               "n_g' (Slice): cuts dimension 1 of 6 elements from 0 to B, which depends on the "
               "number of samples B");
  LossGraph thousand;
  thousand.ints("v1000", {1000});
  Outcome cut = thousand.importWith("g = Slice l v0 v1000; loss = ReduceMean g");
  EXPECT_ERROR(cut, "n_g' (Slice): selects some of the samples");
  LossGraph fixed;
  fixed.ints("seven", {7, 24});
  Outcome refused = fixed.importWith("bent = Reshape squares seven; loss = ReduceMean bent");
  EXPECT_ERROR(refused, "n_bent' (Reshape)");
  EXPECT_ERROR(
      LossGraph().importWith("c = Mul iB iB; e = Unsqueeze c v0; g = ConstantOfShape e; h = "
                             "ReduceSum g; loss = Add m h"),
      "n_g' (ConstantOfShape): takes the length B*B, which depends on the number of samples B");
  EXPECT_ERROR(LossGraph().importWith(
                   "c = Div iB i2; e = Unsqueeze c v0; g = Slice l v0 e; loss = ReduceSum g"),
               "n_g' (Slice): cuts dimension 0 of B elements from 0 to trunc(B/2), which depends "
               "on the number of samples B");
}

TEST(NumbersOfTheBatch, NumbersOfSamplesAreValues) {
  EXPECT_EQ(factorOf("r = Range i0 iB i1; c = Cast r; d = Mul c l; loss = ReduceSum d"), "1/24");
  EXPECT_EQ(
      factorOf("r = Range i0 iB i1; c = Mod r i2; e = Cast c; d = Mul e l; loss = ReduceSum d"),
      "1/24");
  EXPECT_EQ(factorOf("r = Range i0 iB i1; c = Cast r; n = ReduceSum c; loss = Div s n"), "1/n0");
  EXPECT_EQ(
      factorOf(
          "e = Unsqueeze iB v0; o = Expand f1 e; c = CumSum o i0; d = Mul c l; loss = ReduceSum d"),
      "1/24");
  EXPECT_EQ(
      factorOf("r = Range i0 iB i1; c = Sub iB r; d = Cast c; e = Mul d l; loss = ReduceSum e"),
      "1/24");
  EXPECT_ERROR(
      LossGraph().importWith(
          "r = Range i0 iB i1; c = Add r i1; d = Mod c i2; e = Gather l d; loss = ReduceSum e"),
      "n_e' (Gather): picks by ids of one sample from all samples");
  EXPECT_ERROR(LossGraph().importWith(
                   "r = Range i0 iB i1; c = Div r i2; e = Gather l c; loss = ReduceSum e"),
               "n_e' (Gather): picks by ids of one sample from all samples");
  EXPECT_ERROR(LossGraph().importWith("r = Range i0 iB i1; c = TopK r i1; loss = ReduceSum c"),
               "n_c' (TopK): reads the numbers of the samples in the batch (arange)");
}

TEST(NumbersOfTheBatch, CountsReadCounts) {
  EXPECT_EQ(factorOf("a = ReduceMean weights; b = Sub weights a; c = Mul b b; d = ReduceSum c; e = "
                     "Sqrt d; loss = Div s e"),
            "1/sqrt(n1)");
  EXPECT_EQ(factorOf("a = Softmax weights; b = Mul a l; loss = ReduceSum b"), "1/(24*n1)")
      << "n0 is the largest weight";
  EXPECT_EQ(factorOf("a = ReduceMax weights; b = Div weights a; c = ReduceSum b; loss = Div s c"),
            "n0/n1");
  EXPECT_ERROR(LossGraph().importWith("a = Softmax l; b = Mul a l; loss = ReduceSum b"),
               "n_a' (Softmax): normalizes activations over the samples");
}

TEST(NumbersOfTheBatch, TheFirstAndTheLastSample) {
  EXPECT_EQ(factorOf("a = Gather weights i0; loss = Div s a"), "1/n0");
  EXPECT_EQ(factorOf("a = Gather labels i0; b = Gather a i0; c = Equal labels b; d = Cast c; e = "
                     "ReduceSum d; loss = Div s e"),
            "1/n1")
      << "n0 is the label";
  LossGraph last;
  last.ints("last", {-1});
  last.ints("end", {std::numeric_limits<int64_t>::max()});
  EXPECT_EQ(factors(last.importWith("a = Slice weights last end; b = ReduceSum a; loss = Div s b")),
            "1/n0");
  EXPECT_ERROR(LossGraph().importWith("a = Gather weights i2; loss = Div s a"),
               "n_a' (Gather): selects samples by constant ids");
  EXPECT_ERROR(LossGraph().importWith("a = Gather l i0; loss = Add m a"),
               "n_a' (Gather): selects samples by constant ids");
}

// The check against the file's nodes compares numbers.
TEST(NumbersOfTheBatch, PositionsInReverse) {
  for (int64_t step : {-1, -2}) {
    LossGraph graph;
    graph.ints("last", {-1});
    graph.ints("all", {-100000});
    graph.ints("v1", {1});
    graph.ints("step", {step});
    EXPECT_EQ(factors(graph.importWith("a = Slice squares last all v1 step; b = Sin a; c = Slice b "
                                       "v0 v3 v1; d = Slice x v0 v3 v1; e = Mul c d; loss = "
                                       "ReduceSum e")),
              "1");
  }
  LossGraph graph;
  graph.ints("last", {-1});
  graph.ints("all", {-100000});
  Outcome refused =
      graph.importWith("a = Slice l last all v0 last; b = Mul a l; loss = ReduceSum b");
  EXPECT_ERROR(refused, "n_a' (Slice): selects some of the samples");
}

TEST(NumbersOfTheBatch, WhatMixesSamplesIsRefusedByName) {
  EXPECT_ERROR(LossGraph().importWith("loss = Sqrt m"),
               "n_loss' (Sqrt): takes a function of a sum over samples that is not known before "
               "the step (it depends on weights");
  EXPECT_ERROR(LossGraph().importWith("loss = Mul m s"),
               "n_loss' (Mul): multiplies a sum over samples that is not known before the step");
  EXPECT_ERROR(LossGraph().importWith("loss = Div f1 m"),
               "n_loss' (Div): divides by a sum over samples that is not known before the step");
  EXPECT_ERROR(LossGraph().importWith("loss = Clip m f1"),
               "n_loss' (Clip): clips a sum over samples");
  EXPECT_ERROR(LossGraph().importWith("a = Sub l m; b = Mul a a; loss = ReduceMean b"),
               "n_a' (Sub): adds a sum over samples to values of samples");
  EXPECT_ERROR(LossGraph().importWith("o = Expand f1 v3; p = Mul m o; loss = ReduceSum p"),
               "n_p' (Mul): combines a sum over samples with a tensor");
  EXPECT_ERROR(LossGraph().importWith("loss = ReduceMax l"),
               "n_loss' (ReduceMax): takes the extremum of all samples: it combines samples of");
  EXPECT_ERROR(LossGraph().importWith("loss = ReduceMean features"),
               "depends on no parameter: it is n0/(3*B)");
  EXPECT_ERROR(LossGraph().importWith("c = TopK l iB; loss = ReduceSum c"),
               "n_c' (TopK): computes with a number that is known only with the batch (B;");
}

// The importer's views use some size as the number of samples, which divides no size of the file. A
// tensor of these sizes changes this size and nothing else.
TEST(NumbersOfTheBatch, NothingDependsOnTheSizeInThePlaceOfSamples) {
  for (const char *nodes :
       {"loss = Div s fB", "c = Div iB i2; d = Cast c; loss = Div s d",
        "c = ReduceSum weights; d = Div weights c; e = Mul d l; loss = ReduceSum e",
        "e = Unsqueeze iB v0; g = Expand f1 e; h = ReduceSum g; loss = Div s h",
        "k = Concat squares squares; loss = ReduceMean k",
        "a = ReduceMean features v0; b = ReduceSum a; loss = Mul m b",
        "c = Min fB f2; d = Mul x c; loss = ReduceMean d"}) {
    LossGraph plain, other;
    for (int64_t size : {61, 67, 71, 73, 79})
      other.weight("unused" + std::to_string(size), {size});
    Outcome first = plain.importWith(nodes), second = other.importWith(nodes);
    EXPECT_TRUE(first.ok) << first.text;
    EXPECT_EQ(first.text, second.text);
  }
}

TEST(NumbersOfTheBatch, InAFileOfAFixedBatch) {
  const auto fixed = [](const std::string &nodes) {
    LossGraph graph(5);
    graph.real("f5", 5);
    graph.real("f10", 10);
    graph.real("f120", 120);
    graph.real("f4", 4);
    return graph.importWith(nodes);
  };
  EXPECT_EQ(factors(fixed("loss = Div s f5")), "1/B");
  EXPECT_EQ(factors(fixed("loss = Div s f120")), "1/(24*B)");
  EXPECT_EQ(factors(fixed("loss = Div s f4")), "1/4");
  EXPECT_EQ(factors(fixed("loss = Div s fB")), "1/B") << "the shape of an input says what it is";
  std::string notes;
  for (const std::string &note : fixed("loss = Div s f5").model.notes)
    notes += note + "\n";
  EXPECT_TRUE(contains(
      notes,
      "node 'n_loss' (Div): 5 is assumed to be the number of samples; the file fixes 5 samples"))
      << notes;
  EXPECT_ERROR(fixed("loss = Div s f10"), "n_loss' (Div): divides a sum over samples by 10, which "
                                          "may stand for the 5 samples that the file fixes");
}
