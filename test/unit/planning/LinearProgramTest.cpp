// Tests the linear program of the bound: with results computed by hand, with an exact method for
// two kinds of work, and with its own certificate.
#include "Planning/Bound/LinearProgram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

using namespace zorse::planning;

namespace {

TEST(LinearProgram, ByHand) {
  EXPECT_NEAR(minTime({{3, {2}}}, {6}), 4, 1e-12); // 6 pieces of 2 seconds on 3 machines
  EXPECT_NEAR(minTime({{1, {1, 2}}, {1, {2, 1}}}, {1, 1}), 1,
              1e-12); // each machine does the work that it is faster at
  EXPECT_NEAR(minTime({{1, {1, 1}}, {1, {1, 3}}}, {1, 1}), 1, 1e-12);
  EXPECT_NEAR(minTime({{1, {1, 1}}, {1, {1, 3}}}, {1, 2}), 1.75,
              1e-12); // the second machine also does a quarter of a piece of 3 seconds
  EXPECT_NEAR(minTime({{2, {1, 1}}, {4, {2, 2}}}, {5, 3}), 2,
              1e-12); // proportional speeds: work over the sum of speeds
}

TEST(LinearProgram, NothingToDo) {
  EXPECT_EQ(minTime({}, {1}), 0);
  EXPECT_EQ(minTime({{1, {1}}}, {0}), 0);
  EXPECT_EQ(minTime({{1, {0, 0}}}, {1, 1}), 0); // free work
  EXPECT_NEAR(minTime({{1, {0, 2}}, {1, {5, 2}}}, {9, 1}), 1,
              1e-12); // free for one machine: not a constraint
  EXPECT_EQ(minTime({{0, {1}}}, {1}), 0);
}

/// Exact solution for two kinds of work. Machines take the first kind in the order of their
/// relative speed until it is done; bisection finds the minimum T.
double exactForTwo(std::vector<Machines> machines, const std::vector<double> &amounts) {
  std::sort(machines.begin(), machines.end(), [](const Machines &a, const Machines &b) {
    return a.seconds[0] / a.seconds[1] < b.seconds[0] / b.seconds[1];
  });
  auto possible = [&](double t) {
    double left = amounts[0], second = 0;
    for (const Machines &m : machines) {
      double take = std::min(left, t * m.count / m.seconds[0]);
      left -= take;
      second += (t * m.count - take * m.seconds[0]) / m.seconds[1];
    }
    return left <= 0 && second >= amounts[1];
  };
  double low = 0, high = 1;
  while (!possible(high))
    high *= 2;
  for (int i = 0; i < 200; ++i)
    (possible((low + high) / 2) ? high : low) = (low + high) / 2;
  return high;
}

TEST(LinearProgram, TwoKindsExactly) {
  std::mt19937_64 random(1);
  auto draw = [&](double low, double high) {
    return low * std::pow(high / low, static_cast<double>(random() % 1000) / 1000);
  };
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<Machines> machines(1 + random() % 12);
    for (Machines &m : machines)
      m = {double(1 + random() % 200), {draw(1e-5, 1), draw(1e-5, 1)}};
    std::vector<double> amounts = {draw(1, 1e6), draw(1, 1e6)};
    double exact = exactForTwo(machines, amounts), found = minTime(machines, amounts);
    EXPECT_LE(found, exact * (1 + 1e-9)) << trial;
    EXPECT_GE(found, exact * (1 - 1e-7)) << trial;
  }
}

/// The bound of any prices is at most the optimum.
TEST(LinearProgram, AnyPricesAreABound) {
  std::mt19937_64 random(2);
  auto draw = [&] { return 0.01 + static_cast<double>(random() % 1000) / 500; };
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<Machines> machines(1 + random() % 6);
    std::vector<double> amounts(1 + random() % 5), prices;
    for (double &a : amounts) {
      a = draw();
      prices.push_back(random() % 4 ? draw() : 0);
    }
    for (Machines &m : machines) {
      m.count = double(1 + random() % 4);
      for (size_t l = 0; l < amounts.size(); ++l)
        m.seconds.push_back(draw());
    }
    EXPECT_LE(provenBy(prices, machines, amounts), minTime(machines, amounts) * (1 + 1e-9))
        << trial;
  }
}

} // namespace
