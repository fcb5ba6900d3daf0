// Tests that the verifier never crashes on malformed programs, summaries, functions and plans, with
// or without findings. Most useful with sanitizers.
#include "VerifyTestSupport.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

using namespace zorse;
using namespace zorse::test;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

namespace {

template <typename T> T extreme(std::mt19937 &random) {
  switch (random() % 8) {
  case 0:
    return std::numeric_limits<T>::max();
  case 1:
    return std::numeric_limits<T>::min();
  case 2:
    return T(std::numeric_limits<T>::max() / 2 + 1);
  case 3:
    return T(-1);
  case 4:
    return T(uint64_t(1) << (random() % (sizeof(T) * 8)));
  case 5:
    return T(0);
  default:
    return T(random() % 16);
  }
}

/// Sets a random field of `message`, or of a nested message, to an unusual value, or removes or
/// repeats an element of a list.
void corrupt(Message &message, std::mt19937 &random) {
  const auto *reflection = message.GetReflection();
  const auto *descriptor = message.GetDescriptor();
  if (!descriptor->field_count())
    return;
  const FieldDescriptor *field =
      descriptor->field(int(random() % uint32_t(descriptor->field_count())));
  for (int attempt = 0; attempt < 6; ++attempt) { // prefer set fields
    bool present = field->is_repeated() ? reflection->FieldSize(message, field) > 0
                                        : reflection->HasField(message, field);
    if (present)
      break;
    field = descriptor->field(int(random() % uint32_t(descriptor->field_count())));
  }
  if (field->is_map())
    return;
  bool list = field->is_repeated();
  int size = list ? reflection->FieldSize(message, field) : 0;
  if (list && size && random() % 6 == 0)
    return reflection->RemoveLast(&message, field);
  if (list && size > 1 && random() % 6 == 0)
    return reflection->SwapElements(&message, field, int(random() % uint32_t(size)),
                                    int(random() % uint32_t(size)));
  int at = size ? int(random() % uint32_t(size)) : 0;
  bool grow = list && (size == 0 || random() % 8 == 0);
#define ZORSE_SET(Type, value)                                                                     \
  do {                                                                                             \
    auto v = value;                                                                                \
    if (grow)                                                                                      \
      reflection->Add##Type(&message, field, v);                                                   \
    else if (list)                                                                                 \
      reflection->SetRepeated##Type(&message, field, at, v);                                       \
    else                                                                                           \
      reflection->Set##Type(&message, field, v);                                                   \
  } while (0)
  switch (field->cpp_type()) {
  case FieldDescriptor::CPPTYPE_MESSAGE:
    return corrupt(grow   ? *reflection->AddMessage(&message, field)
                   : list ? *reflection->MutableRepeatedMessage(&message, field, at)
                          : *reflection->MutableMessage(&message, field),
                   random);
  case FieldDescriptor::CPPTYPE_INT32:
    ZORSE_SET(Int32, extreme<int32_t>(random));
    break;
  case FieldDescriptor::CPPTYPE_INT64:
    ZORSE_SET(Int64, extreme<int64_t>(random));
    break;
  case FieldDescriptor::CPPTYPE_UINT32:
    ZORSE_SET(UInt32, extreme<uint32_t>(random));
    break;
  case FieldDescriptor::CPPTYPE_UINT64:
    ZORSE_SET(UInt64, extreme<uint64_t>(random));
    break;
  case FieldDescriptor::CPPTYPE_DOUBLE:
    ZORSE_SET(Double, random() % 2 ? std::numeric_limits<double>::quiet_NaN()
                                   : std::numeric_limits<double>::infinity());
    break;
  case FieldDescriptor::CPPTYPE_BOOL:
    ZORSE_SET(Bool, bool(random() % 2));
    break;
  case FieldDescriptor::CPPTYPE_ENUM:
    ZORSE_SET(EnumValue, int(random() % 24));
    break;
  default:
    break;
  }
#undef ZORSE_SET
}

} // namespace

TEST(Malformed, ProgramsNeverCrash) {
  Case original({}, dataParallel(makeModel({}))), chain({}, pipeline());
  int rejected = 0;
  for (uint32_t seed = 0; seed < 6000; ++seed) {
    std::mt19937 random(seed);
    Case &base = seed % 2 ? original : chain;
    std::vector<bundle::Program> programs = base.programs;
    for (uint32_t n = 0; n <= seed % 3; ++n)
      corrupt(programs[random() % programs.size()], random);
    rejected +=
        !verify::verifyPrograms(base.model.summary, base.model.functions, base.view, programs, {})
             .empty();
  }
  EXPECT_GT(rejected, 3000);
}

TEST(Malformed, SummaryAndBodiesNeverCrash) {
  Case base({}, dataParallel(makeModel({})));
  for (uint32_t seed = 0; seed < 4000; ++seed) {
    std::mt19937 random(seed);
    SyntheticModel model = base.model;
    for (uint32_t n = 0; n <= seed % 3; ++n)
      seed % 2 ? corrupt(model.summary, random) : corrupt(model.functions, random);
    verify::verifyPrograms(model.summary, model.functions, base.view, base.programs, {});
  }
}

TEST(Malformed, PlansNeverCrash) {
  Case base({}, pipeline());
  for (uint32_t seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    verify::PlanView view = base.view;
    auto &cell = view.cells[random() % view.cells.size()];
    int64_t *fields[] = {&cell.firstUnit, &cell.endUnit, &cell.firstSample, &cell.endSample,
                         &view.batch};
    *fields[random() % 5] = extreme<int64_t>(random);
    if (random() % 4 == 0)
      cell.device = extreme<uint32_t>(random);
    view.owners.push_back({extreme<uint32_t>(random), uint32_t(random() % 3),
                           extreme<int64_t>(random), extreme<int64_t>(random)});
    verify::verifyPrograms(base.model.summary, base.model.functions, view, base.programs, {});
  }
}

TEST(Malformed, BytesNeverCrash) {
  Case base({}, pipeline());
  std::string bytes = base.programs[0].SerializeAsString();
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    std::string broken = bytes;
    for (int n = 0; n < 3; ++n)
      broken[random() % broken.size()] = char(random());
    if (seed % 4 == 0)
      broken.resize(random() % broken.size());
    verify::verifySerialized(base.model.summary, base.model.functions, base.view,
                             {broken, base.programs[1].SerializeAsString()}, {});
  }
}
