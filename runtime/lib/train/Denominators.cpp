#include "zorse/runtime/Elements.h"
#include "zorse/runtime/HostProcessor.h"
#include "zorse/runtime/Training.h"
#include "zorse/runtime/abi/StepScalars.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::runtime;

/// One body over all rows of the batch, on one thread of the host.
class Denominators::Implementation {
public:
  explicit Implementation(const Bundle &bundle) : bundle_(bundle) {}

  Status prepare() {
    const auto &terms = bundle_.summary.loss();
    if (std::all_of(terms.begin(), terms.end(), [](const bundle::LossTerm &term) { return term.constant_denominator(); }))
      return Status::success();
    if (bundle_.summary.denominator_body() < 0)
      return userError(bundle_.directory + "/summary.pb: a loss term has a counted denominator, but there is no body that counts it");
    const uint32_t target = hostTarget(bundle_), body = uint32_t(bundle_.summary.denominator_body());
    body_ = &bundle_.target(target).bodies(int(body));
    DeviceRequest request;
    request.name = "host";
    Result<std::unique_ptr<QueuedDevice>> device = makeHostProcessor(bundle_, target, {body}, request);
    if (device.failed())
      return device.error();
    device_ = std::move(*device);

    size_t bytes = 0;
    std::vector<size_t> offsets;
    for (int i = 0; i < body_->slots_size(); ++i) {
      const bundle::Slot &slot = body_->slots(i);
      bool known = (slot.kind() == bundle::INPUT && slot.index() < uint32_t(bundle_.summary.denominator_inputs_size())) ||
                   slot.kind() == bundle::WORKSPACE || slot.kind() == bundle::LOSS || slot.kind() == bundle::SCALARS;
      if (!known)
        return userError(bundle_.directory +
                         "/bodies.pb: the body that counts denominators has a slot it cannot have: " + bundle::SlotKind_Name(slot.kind()));
      int64_t size, least = 0;
      if (slot.kind() == bundle::INPUT)
        least = bundle_.batch * bundle_.summary.inputs(int(bundle_.summary.denominator_inputs(int(slot.index())))).bytes_per_row();
      else if (slot.kind() == bundle::LOSS)
        least = bundle_.batch * int64_t(elementBytes(slot.type()));
      else if (slot.kind() == bundle::SCALARS)
        least = int64_t(sizeof(zorse::abi::StepScalars));
      if (slot.bytes().fixed() < 0 || slot.bytes().per_row() < 0 || __builtin_mul_overflow(slot.bytes().per_row(), bundle_.batch, &size) ||
          __builtin_add_overflow(size, slot.bytes().fixed(), &size) || size < least || size > (int64_t(1) << 40))
        return userError(bundle_.directory + "/bodies.pb: slot " + std::to_string(i) +
                         " of the body that counts denominators has an impossible size");
      offsets.push_back(bytes);
      bytes += (size + 63) / 64 * 64;
    }
    for (const bundle::LossTerm &term : terms) {
      int slot = term.constant_denominator() ? -1 : outputSlot(term.denominator_output());
      if (!term.constant_denominator() && slot < 0)
        return userError(bundle_.directory + "/bodies.pb: the body that counts denominators has no output " +
                         std::to_string(term.denominator_output()));
      outputs_.push_back(slot);
    }
    Result<std::unique_ptr<DeviceMemory>> memory = device_->allocate(bundle::HOST, bytes, {});
    if (memory.failed())
      return memory.error();
    memory_ = std::move(*memory);
    for (size_t offset : offsets)
      slots_.push_back(memory_->base() + offset);
    return Status::success();
  }

  Result<std::vector<double>> count(const Batch &batch) {
    std::vector<double> result;
    if (body_) {
      for (int i = 0; i < body_->slots_size(); ++i)
        if (body_->slots(i).kind() == bundle::INPUT) {
          const auto &bytes = batch.inputs[bundle_.summary.denominator_inputs(body_->slots(i).index())];
          if (Status status = device_->write(slots_[i], bytes.data(), bytes.size()); status.failed())
            return status;
        }
      BodyArguments arguments;
      arguments.slots = slots_.data();
      arguments.rows = bundle_.batch;
      if (Status status = device_->runBody(uint32_t(bundle_.summary.denominator_body()), arguments); status.failed())
        return status;
    }
    for (int k = 0; k < bundle_.summary.loss_size(); ++k) {
      const bundle::LossTerm &term = bundle_.summary.loss(k);
      if (term.constant_denominator()) {
        result.push_back(term.denominator_per_row() * double(bundle_.batch));
        continue;
      }
      Result<double> total = sum(outputs_[k]);
      if (total.failed())
        return total.error();
      result.push_back(*total);
    }
    return result;
  }

private:
  int outputSlot(int output) const {
    for (int i = 0; i < body_->slots_size(); ++i)
      if (body_->slots(i).kind() == bundle::LOSS && int(body_->slots(i).index()) == output)
        return i;
    return -1;
  }

  Result<double> sum(int slot) const {
    const StoredType type = storedType(body_->slots(slot).type());
    std::vector<std::byte> stored(bundle_.batch * bytesOf(type));
    if (Status status = device_->read(stored.data(), slots_[slot], stored.size()); status.failed())
      return status;
    std::vector<double> rows(bundle_.batch);
    convertElements(stored.data(), type, rows.data(), StoredType::F64, bundle_.batch);
    double total = 0;
    for (double row : rows)
      total += row;
    return total;
  }

  const Bundle &bundle_;
  const bundle::Body *body_ = nullptr;
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceMemory> memory_;
  std::vector<DeviceAddress> slots_;
  std::vector<int> outputs_; ///< slot of each term's denominator
};

Denominators::Denominators(std::unique_ptr<Implementation> implementation) : implementation_(std::move(implementation)) {}
Denominators::~Denominators() = default;

Result<std::unique_ptr<Denominators>> Denominators::create(const Bundle &bundle) {
  auto implementation = std::make_unique<Implementation>(bundle);
  if (Status status = implementation->prepare(); status.failed())
    return status;
  return std::unique_ptr<Denominators>(new Denominators(std::move(implementation)));
}

Result<std::vector<double>> Denominators::count(const Batch &batch) { return implementation_->count(batch); }
