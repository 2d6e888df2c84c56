// An operation on a card is called again with tensors of the host that lie in the same memory; what comes out is put
// back on the card. Views stay views, because results that lie in an argument's memory get the argument's storage.
#include "tests/gpu/stand_in_call.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "tests/gpu/stand_in_graph.h"

namespace cohort::gpu {

bool on_card(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kCard;
}

c10::Device card_or_current(c10::optional<c10::Device> device) {
  if (device && device->has_index()) return *device;
  return {kCard, current_card};
}

namespace {

// Keeps what the memory belongs to while somebody looks at it.
c10::DataPtr kept_by(c10::Storage owner, void* data, c10::Device device) {
  auto held = std::make_unique<c10::Storage>(std::move(owner));
  return {data, held.release(),
          [](void* context) { std::unique_ptr<c10::Storage>(static_cast<c10::Storage*>(context)); }, device};
}

// The bytes of each card's tensors, and the most that there may be; 0: as many as one likes.
constexpr std::size_t kMostCards = 64;
std::array<std::atomic<int64_t>, kMostCards> held{};
std::array<std::atomic<int64_t>, kMostCards> most_held{};
std::atomic<int64_t> limit = 0;

// What a card's memory is in the host's.
struct Taken {
  c10::Storage owner;
  std::size_t card;
  int64_t bytes;
};

// Returns memory of the host as that of a card, which counts it until it is given back.
c10::DataPtr taken_by_card(const c10::Storage& owner, c10::Device device) {
  const auto card = static_cast<std::size_t>(device.index());
  const auto bytes = static_cast<int64_t>(owner.nbytes());
  const int64_t now = held[card] += bytes;
  if (limit > 0 && now > limit) {
    held[card] -= bytes;
    TORCH_CHECK_WITH(OutOfMemoryError, false, "the stand-in card is out of memory. Tried to allocate ", bytes,
                     " bytes; ", now - bytes, " of ", limit.load(), " are taken");
  }
  most_held[card] = std::max(most_held[card].load(), now);
  auto taken = std::make_unique<Taken>(Taken{owner, card, bytes});
  return {owner.data_ptr().get(), taken.release(),
          [](void* context) {
            const std::unique_ptr<Taken> given_back(static_cast<Taken*>(context));
            held[given_back->card] -= given_back->bytes;
          },
          device};
}

// Returns a storage with the memory of another one, on another device.
c10::Storage storage_with(const c10::Storage& of, c10::Device device) {
  return {c10::Storage::use_byte_size_t(), of.nbytes(), kept_by(of, of.data_ptr().get(), device), at::getCPUAllocator(),
          /*resizable=*/true};
}

}  // namespace

torch::Tensor tensor_in(c10::Storage storage, c10::DispatchKeySet keys, const torch::Tensor& like) {
  auto made = c10::make_intrusive<c10::TensorImpl, c10::UndefinedTensorImpl>(std::move(storage), keys, like.dtype());
  made->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return torch::Tensor(std::move(made));
}

c10::Storage memory_of(const torch::Tensor& tensor) {
  return static_cast<Taken*>(tensor.storage().data_ptr().get_context())->owner;
}

torch::Tensor moved_to_card(const torch::Tensor& host, c10::Device device) {
  const c10::Storage& of = host.storage();
  return tensor_in({c10::Storage::use_byte_size_t(), of.nbytes(), taken_by_card(of, device), at::getCPUAllocator(),
                    /*resizable=*/true},
                   kCardKeys, host);
}

int64_t bytes_on_card(int card) {
  return held[static_cast<std::size_t>(card)];
}

int64_t most_bytes_on_card(int card) {
  return most_held[static_cast<std::size_t>(card)];
}

int64_t limit_of_card() {
  return limit;
}

void set_limit_of_card(int64_t bytes) {
  limit = bytes;
}

torch::Tensor on_host(const torch::Tensor& tensor) {
  return on_card(tensor)
             ? tensor_in(storage_with(tensor.storage(), c10::kCPU), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor)
             : tensor;
}

namespace {

class CardCall {
 public:
  CardCall(const c10::OperatorHandle& op, torch::jit::Stack& stack) : op_(op), stack_(stack) {}

  void make() {
    const std::size_t count = op_.schema().arguments().size();
    for (std::size_t i = stack_.size() - count; i < stack_.size(); ++i) stack_[i] = to_host(stack_[i]);
    require_one_device();
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      op_.callBoxed(&stack_);
    }
    for (const Alias& alias : aliases_) take_back(alias);
    const std::string& name = op_.schema().name();
    if (name == "aten::mm" || name == "aten::addmm" || name == "aten::bmm") ++products;
    for (std::size_t i = stack_.size() - op_.schema().returns().size(); i < stack_.size(); ++i) {
      stack_[i] = to_card(stack_[i]);
    }
  }

 private:
  // A tensor of the card, and the one of the host in the same memory.
  struct Alias {
    torch::Tensor card;
    torch::Tensor host;
  };

  c10::IValue to_host(const c10::IValue& value) {
    if (value.isTensor()) return tensor_to_host(value.toTensor());
    if (value.isTensorList()) {
      c10::List<torch::Tensor> list;
      for (const torch::Tensor& each : value.toTensorVector()) list.push_back(tensor_to_host(each));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<c10::optional<torch::Tensor>> list;
      for (const c10::optional<torch::Tensor>& each : value.toOptionalTensorVector()) {
        list.push_back(each ? c10::optional<torch::Tensor>(tensor_to_host(*each)) : c10::nullopt);
      }
      return list;
    }
    if (value.isDevice() && value.toDevice().type() == kCard) return c10::Device(c10::kCPU);
    if (value.isGenerator()) return generator_to_host(value.toGenerator());
    return value;
  }

  torch::Tensor tensor_to_host(const torch::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    if (!on_card(tensor)) {
      if (tensor.dim() > 0) of_host_ = true;
      return tensor;
    }
    if (!card_) card_ = tensor.device();
    if (*card_ != tensor.device()) other_ = tensor.device();
    for (const Alias& known : aliases_) {
      if (known.card.is_same(tensor)) return known.host;
    }
    c10::Storage storage;
    for (const Alias& known : aliases_) {
      if (known.card.storage().is_alias_of(tensor.storage())) storage = known.host.storage();
    }
    if (!storage) storage = storage_with(tensor.storage(), c10::kCPU);
    const torch::Tensor host = tensor_in(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor);
    aliases_.push_back({tensor, host});
    return host;
  }

  at::Generator generator_to_host(const at::Generator& generator) const {
    if (!generator.defined()) return generator;
    TORCH_CHECK(generator.device().type() == kCard, op_.schema().name(), ": expected a generator of ", kCard,
                ", but got one of ", generator.device());
    return static_cast<const CardGenerator*>(generator.unsafeGetGeneratorImpl())->host();
  }

  // Indices may lie on the host.
  void require_one_device() const {
    const std::string& name = op_.schema().name();
    const bool indexes = name == "aten::index" || name == "aten::index_put_" || name == "aten::_index_put_impl_" ||
                         name == "aten::index_put";
    TORCH_CHECK(!of_host_ || !card_ || indexes, "Expected all tensors to be on the same device, but ", name,
                " found at least two, ", *card_, " and cpu");
    TORCH_CHECK(!other_, "Expected all tensors to be on the same device, but ", name, " found at least two, ", *card_,
                " and ", *other_);
  }

  // Operations that write to a tensor may have given it other sizes, and its storage other memory.
  static void take_back(const Alias& alias) {
    const c10::Storage& card = alias.card.storage();
    const c10::Storage& host = alias.host.storage();
    if (host.data_ptr().get() != card.data_ptr().get() || host.nbytes() != card.nbytes()) {
      card.set_data_ptr_noswap(taken_by_card(host, alias.card.device()));
      card.set_nbytes(host.nbytes());
    }
    if (alias.host.sizes() == alias.card.sizes() && alias.host.strides() == alias.card.strides() &&
        alias.host.storage_offset() == alias.card.storage_offset())
      return;
    alias.card.unsafeGetTensorImpl()->set_sizes_and_strides(alias.host.sizes(), alias.host.strides(),
                                                            alias.host.storage_offset());
  }

  c10::IValue to_card(const c10::IValue& value) const {
    if (value.isTensor()) return tensor_to_card(value.toTensor());
    if (!value.isTensorList()) return value;
    c10::List<torch::Tensor> list;
    for (const torch::Tensor& each : value.toTensorVector()) list.push_back(tensor_to_card(each));
    return list;
  }

  torch::Tensor tensor_to_card(const torch::Tensor& tensor) const {
    if (!tensor.defined() || on_card(tensor)) return tensor;
    for (const Alias& known : aliases_) {
      if (known.host.is_same(tensor)) return known.card;
    }
    for (const Alias& known : aliases_) {
      if (known.host.storage().is_alias_of(tensor.storage())) {
        return tensor_in(known.card.storage(), known.card.key_set(), tensor);  // a view has its base's keys
      }
    }
    return moved_to_card(tensor, card_or_current(card_ ? c10::optional<c10::Device>(*card_) : c10::nullopt));
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  std::vector<Alias> aliases_;
  c10::optional<c10::Device> card_;
  c10::optional<c10::Device> other_;
  bool of_host_ = false;
};

}  // namespace

void call_on_card(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  note_work();
  const auto make = [op](torch::jit::Stack& own) { CardCall(op, own).make(); };
  if (CardCapture* const capture = CardCapture::of_thread()) return capture->call(op, *stack, make);
  make(*stack);
}

}  // namespace cohort::gpu
