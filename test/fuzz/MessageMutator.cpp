// Mutates protobuf messages by reflection. The result parses, so that readers get wrong contents
// instead of malformed bytes.
#include "Fuzz.h"

#include <google/protobuf/arena.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <memory>

using namespace zorse::fuzz;
using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

namespace {

/// An arena with preallocated memory.
struct Memory {
  google::protobuf::Arena arena;
  Memory() : arena(start(), kBytes) {}

private:
  static constexpr size_t kBytes = size_t(1) << 19;
  static char *start() {
    static std::unique_ptr<char[]> memory(new char[kBytes]);
    return memory.get();
  }
};

/// A field of a message in the tree. `index`: element of a repeated field; -1: the whole field.
struct Site {
  Message *message;
  const FieldDescriptor *field;
  int index;
};

/// Collects every field of every message of the tree, including unset ones. Maps are treated as
/// repeated messages.
void collect(Message &message, std::vector<Site> &sites, int depth = 0) {
  const Descriptor *type = message.GetDescriptor();
  const Reflection *reflection = message.GetReflection();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor *field = type->field(i);
    sites.push_back({&message, field, -1});
    if (field->is_repeated()) {
      int size = reflection->FieldSize(message, field);
      for (int k = 0; k < size; ++k) {
        sites.push_back({&message, field, k});
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && depth < 60)
          collect(*reflection->MutableRepeatedMessage(&message, field, k), sites, depth + 1);
      }
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
               reflection->HasField(message, field) && depth < 60) {
      collect(*reflection->MutableMessage(&message, field), sites, depth + 1);
    }
  }
}

bool isSet(const Site &site) {
  const Reflection *reflection = site.message->GetReflection();
  return site.index >= 0 ||
         (!site.field->is_repeated() &&
          (reflection->HasField(*site.message, site.field) || !site.field->has_presence()));
}

/// Picks another site with a value of the same type, so that indices and names of one list are
/// copied to another.
const Site *similar(const std::vector<Site> &sites, const Site &site, Random &random) {
  for (int tries = 0; tries < 24; ++tries) {
    const Site &other = sites[random() % sites.size()];
    if (other.field->cpp_type() == site.field->cpp_type() && isSet(other) &&
        (site.field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE ||
         other.field->message_type() == site.field->message_type()))
      return &other;
  }
  return nullptr;
}

template <typename T> T near(T value, Random &random) {
  switch (random() % 6) {
  case 0:
    return T(uint64_t(value) + 1);
  case 1:
    return T(uint64_t(value) - 1);
  case 2:
    return T(uint64_t(value) * 2);
  case 3:
    return T(uint64_t(value) / 2);
  case 4:
    return T(uint64_t(value) ^ (uint64_t(1) << random() % (8 * sizeof(T))));
  default:
    return T(oddNumber(random));
  }
}

double nearReal(double value, Random &random) {
  static constexpr double odd[] = {0.0, -0.0, 1.0, -1.0, 1e308, -1e308, 1e-308, INFINITY, NAN};
  return random() % 3 ? odd[random() % std::size(odd)] : value * (random() % 2 ? 2 : 0.5);
}

std::string nearText(const FieldDescriptor *field, const std::string &value, Random &random) {
  std::string text = value.empty() && random() % 2 ? std::string()
                                                   : mutateBytes(value, value.size() + 16);
  if (field->type() == FieldDescriptor::TYPE_STRING) // the parser refuses strings that are not
                                                     // UTF-8
    std::transform(text.begin(), text.end(), text.begin(), [](char c) { return char(c & 0x7f); });
  return text;
}

// Reads and writes one value at a site.
#define ZORSE_FUZZ_ACCESS(Name, Type)                                                              \
  Type get##Name(const Site &s) {                                                                  \
    const Reflection *r = s.message->GetReflection();                                              \
    return s.index >= 0 ? r->GetRepeated##Name(*s.message, s.field, s.index)                       \
                        : r->Get##Name(*s.message, s.field);                                       \
  }                                                                                                \
  void set##Name(const Site &s, Type value) {                                                      \
    const Reflection *r = s.message->GetReflection();                                              \
    s.index >= 0 ? r->SetRepeated##Name(s.message, s.field, s.index, value)                        \
                 : r->Set##Name(s.message, s.field, value);                                        \
  }
ZORSE_FUZZ_ACCESS(Int32, int32_t)
ZORSE_FUZZ_ACCESS(Int64, int64_t)
ZORSE_FUZZ_ACCESS(UInt32, uint32_t)
ZORSE_FUZZ_ACCESS(UInt64, uint64_t)
ZORSE_FUZZ_ACCESS(Float, float)
ZORSE_FUZZ_ACCESS(Double, double)
ZORSE_FUZZ_ACCESS(Bool, bool)
ZORSE_FUZZ_ACCESS(String, std::string)
#undef ZORSE_FUZZ_ACCESS

const Message &messageAt(const Site &s) {
  const Reflection *r = s.message->GetReflection();
  return s.index >= 0 ? r->GetRepeatedMessage(*s.message, s.field, s.index)
                      : r->GetMessage(*s.message, s.field);
}
Message &mutableAt(const Site &s) {
  const Reflection *r = s.message->GetReflection();
  return s.index >= 0 ? *r->MutableRepeatedMessage(s.message, s.field, s.index)
                      : *r->MutableMessage(s.message, s.field);
}

/// Sets a new value: close to the old one, or that of `other`.
void change(const Site &site, const Site *other, Random &random) {
  bool take = other && random() % 2;
  switch (site.field->cpp_type()) {
  case FieldDescriptor::CPPTYPE_INT32:
    return setInt32(site, take ? getInt32(*other) : near(getInt32(site), random));
  case FieldDescriptor::CPPTYPE_INT64:
    return setInt64(site, take ? getInt64(*other) : near(getInt64(site), random));
  case FieldDescriptor::CPPTYPE_UINT32:
    return setUInt32(site, take ? getUInt32(*other) : near(getUInt32(site), random));
  case FieldDescriptor::CPPTYPE_UINT64:
    return setUInt64(site, take ? getUInt64(*other) : near(getUInt64(site), random));
  case FieldDescriptor::CPPTYPE_FLOAT:
    return setFloat(site, take ? getFloat(*other) : float(nearReal(getFloat(site), random)));
  case FieldDescriptor::CPPTYPE_DOUBLE:
    return setDouble(site, take ? getDouble(*other) : nearReal(getDouble(site), random));
  case FieldDescriptor::CPPTYPE_BOOL:
    return setBool(site, !getBool(site));
  case FieldDescriptor::CPPTYPE_ENUM: {
    const auto *type = site.field->enum_type();
    int value = random() % 8 ? type->value(random() % type->value_count())->number()
                             : int(random() % 100);
    const Reflection *r = site.message->GetReflection();
    return site.index >= 0 ? r->SetRepeatedEnumValue(site.message, site.field, site.index, value)
                           : r->SetEnumValue(site.message, site.field, value);
  }
  case FieldDescriptor::CPPTYPE_STRING:
    return setString(site,
                     take ? getString(*other) : nearText(site.field, getString(site), random));
  case FieldDescriptor::CPPTYPE_MESSAGE:
    if (other && other->message != site.message) {
      std::unique_ptr<Message> copy(messageAt(*other).New());
      copy->CopyFrom(messageAt(*other));
      mutableAt(site).CopyFrom(*copy);
    } else {
      mutableAt(site);
    }
    return;
  }
}

/// Appends an element: a copy of `other`'s, or an empty one.
void append(const Site &site, const Site *other, Random &random) {
  const Reflection *r = site.message->GetReflection();
  Message &m = *site.message;
  switch (site.field->cpp_type()) {
  case FieldDescriptor::CPPTYPE_INT32:
    return r->AddInt32(&m, site.field, other ? getInt32(*other) : int32_t(oddNumber(random)));
  case FieldDescriptor::CPPTYPE_INT64:
    return r->AddInt64(&m, site.field, other ? getInt64(*other) : oddNumber(random));
  case FieldDescriptor::CPPTYPE_UINT32:
    return r->AddUInt32(&m, site.field, other ? getUInt32(*other) : uint32_t(oddNumber(random)));
  case FieldDescriptor::CPPTYPE_UINT64:
    return r->AddUInt64(&m, site.field, other ? getUInt64(*other) : uint64_t(oddNumber(random)));
  case FieldDescriptor::CPPTYPE_FLOAT:
    return r->AddFloat(&m, site.field, other ? getFloat(*other) : 1.0f);
  case FieldDescriptor::CPPTYPE_DOUBLE:
    return r->AddDouble(&m, site.field, other ? getDouble(*other) : 1.0);
  case FieldDescriptor::CPPTYPE_BOOL:
    return r->AddBool(&m, site.field, random() % 2);
  case FieldDescriptor::CPPTYPE_ENUM:
    return r->AddEnumValue(&m, site.field,
                           site.field->enum_type()
                               ->value(random() % site.field->enum_type()->value_count())
                               ->number());
  case FieldDescriptor::CPPTYPE_STRING:
    return r->AddString(&m, site.field, other ? getString(*other) : std::string());
  case FieldDescriptor::CPPTYPE_MESSAGE: {
    std::unique_ptr<Message> copy(other ? messageAt(*other).New() : nullptr);
    if (other)
      copy->CopyFrom(messageAt(*other));
    Message *added = r->AddMessage(&m, site.field);
    if (copy)
      added->CopyFrom(*copy);
    return;
  }
  }
}

void changeOnce(Message &root, Random &random) {
  std::vector<Site> sites;
  sites.reserve(1024);
  collect(root, sites);
  // Most fields are unset: prefer set fields.
  Site site = sites[random() % sites.size()];
  for (int tries = 0; tries < 3 && !isSet(site) && random() % 4; ++tries)
    site = sites[random() % sites.size()];
  const Reflection *r = site.message->GetReflection();
  const Site *other = similar(sites, site, random);
  if (site.field->is_repeated()) {
    int size = r->FieldSize(*site.message, site.field);
    switch (random() % 8) {
    case 0:
      if (size > 0) { // remove one
        int from = site.index >= 0 ? site.index : int(random() % size);
        for (int i = from; i + 1 < size; ++i)
          r->SwapElements(site.message, site.field, i, i + 1);
        r->RemoveLast(site.message, site.field);
      }
      return;
    case 1:
      if (size > 1)
        r->SwapElements(site.message, site.field, int(random() % size), int(random() % size));
      return;
    case 2:
      if (size < 4096)
        append(site, other, random);
      return;
    case 3: { // repeat an element of this list after itself
      if (size == 0 || size >= 4096)
        return;
      Site own{site.message, site.field, site.index >= 0 ? site.index : int(random() % size)};
      append(site, &own, random);
      for (int i = size; i > own.index + 1; --i)
        r->SwapElements(site.message, site.field, i, i - 1);
      return;
    }
    case 4:
      if (random() % 8 == 0) {
        r->ClearField(site.message, site.field);
        return;
      }
      [[fallthrough]];
    default:
      if (site.index >= 0)
        change(site, other, random);
      else if (size == 0)
        append(site, other, random);
      return;
    }
  }
  if (random() % 8 == 0)
    r->ClearField(site.message, site.field);
  else
    change(site, other, random);
}

/// Disables protobuf's log lines about refused strings.
const bool silent = (google::protobuf::SetLogHandler(nullptr), true);

size_t serialise(const Message &message, uint8_t *data, size_t maxSize) {
  size_t size = message.ByteSizeLong();
  if (size > maxSize || !message.SerializePartialToArray(data, int(size)))
    return 0;
  return size;
}

} // namespace

void zorse::fuzz::mutateMessage(Message &message, Random &random) {
  for (unsigned times = random() % 3 ? 1 : 1 + random() % 4; times > 0; --times)
    changeOnce(message, random);
}

size_t zorse::fuzz::mutateMessage(const Message &prototype, uint8_t *data, size_t size,
                                  size_t maxSize, unsigned seed) {
  Random random(seed);
  if (random() % 16 == 0)
    return LLVMFuzzerMutate(data, size, maxSize);
  Memory memory;
  Message *message = prototype.New(&memory.arena);
  for (int tries = 0; tries < 4; ++tries) {
    if (!message->ParsePartialFromArray(data, int(size)) && random() % 2)
      message->Clear();
    mutateMessage(*message, random);
    if (size_t written = serialise(*message, data, maxSize)) // else the message is too large
      return written;
  }
  return LLVMFuzzerMutate(data, size, maxSize);
}

size_t zorse::fuzz::crossMessages(const Message &prototype, const uint8_t *one, size_t oneSize,
                                  const uint8_t *other, size_t otherSize, uint8_t *out,
                                  size_t outMaxSize, unsigned seed) {
  Random random(seed);
  if (seed % 4) // mutating is cheaper than crossover, and libFuzzer does both equally often
    return 0;
  Memory memory;
  Message *a = prototype.New(&memory.arena), *b = prototype.New(&memory.arena);
  if (!a->ParsePartialFromArray(one, int(oneSize)) ||
      !b->ParsePartialFromArray(other, int(otherSize)))
    return 0;
  std::vector<Site> from;
  from.reserve(1024);
  collect(*b, from);
  for (unsigned times = 1 + random() % 3; times > 0; --times) {
    std::vector<Site> to;
    to.reserve(1024);
    collect(*a, to);
    const Site &site = to[random() % to.size()];
    if (const Site *source = similar(from, site, random)) {
      if (site.field->is_repeated() && (site.index < 0 || random() % 2))
        append(site, source, random);
      else
        change(site, source, random);
    }
  }
  return serialise(*a, out, outMaxSize);
}
