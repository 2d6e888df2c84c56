// The devices, their back end, and the operations that the host waits for.
#include "tests/gpu/stand_in.h"

#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Backtrace.h>
#include <torch/library.h>

#include <atomic>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/backend.h"
#include "device/compute.h"
#include "device/host_random.h"
#include "ops/flush_denormals.h"
#include "tests/gpu/stand_in_call.h"
#include "tests/gpu/stand_in_graph.h"
#include "tests/gpu/stand_in_streams.h"

namespace cohort::gpu {

namespace {

std::atomic<int64_t> waits = 0;
std::atomic<int> tellers = 0;
std::atomic<int64_t> locks = 0;

void note_synchronisation(const std::string& what) {
  TORCH_CHECK(!is_capturing(), "operation not permitted when the card captures: a wait for ", what);
  ++waits;
  if (tellers > 0) std::cerr << "[stand-in card] waits for " << what << "\n" << c10::get_backtrace(2, 40) << std::endl;
}

thread_local std::vector<std::pair<int64_t, int64_t>>* stream_waits = nullptr;

// Streams are names, in which an operation is done when it returns, but for that of a thread's captures, in which it is
// noted. Which one waits for which is noted, too.
class CardGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  explicit CardGuard(int cards) : cards_(static_cast<c10::DeviceIndex>(cards)) {}

  c10::DeviceType type() const override { return kCard; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kCard, current_card}; }
  void setDevice(c10::Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) current_card = device.index();
  }
  c10::Stream getStream(c10::Device device) const noexcept override { return stream_of(device, current_stream()); }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream_of(device, kDefaultStream); }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    return stream_of(stream.device(), std::exchange(chosen_stream, stream.id()));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*isHighPriority*/) const override {
    static std::atomic<c10::StreamId> made = kCaptureStream;
    return stream_of(device, ++made);
  }
  c10::DeviceIndex deviceCount() const noexcept override { return cards_; }

  // An event is reached when it is recorded.
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex /*device*/,
              const c10::EventFlag /*flag*/) const override {
    delete static_cast<c10::Stream*>(std::exchange(*event, new c10::Stream(stream)));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (stream_waits != nullptr) stream_waits->emplace_back(stream.id(), static_cast<c10::Stream*>(event)->id());
  }
  void synchronizeStream(const c10::Stream& /*stream*/) const override {}
  void destroyEvent(void* event, const c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<c10::Stream*>(event);
  }

 private:
  static c10::Stream stream_of(c10::Device device, c10::StreamId id) noexcept {
    return c10::Stream(c10::Stream::UNSAFE, device, id);
  }

  c10::DeviceIndex cards_;
};

// ---- Operations that the host waits for.

// How many elements or which value they find is known when the card has computed it.
constexpr const char* kWaitedFor[] = {"_local_scalar_dense",
                                      "nonzero",
                                      "masked_select",
                                      "equal",
                                      "_unique2",
                                      "bincount",
                                      "repeat_interleave.Tensor",
                                      "unique_dim",
                                      "unique_consecutive",
                                      "_linalg_check_errors"};

void wait_for_card(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  note_synchronisation(op.schema().name());
  call_on_card(op, stack);
}

// A mask becomes places of which the host has to know how many there are; indices of the host travel.
void index_on_card(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::size_t first = stack->size() - op.schema().arguments().size();
  for (const c10::optional<torch::Tensor>& index : (*stack)[first + 1].toOptionalTensorVector()) {
    if (!index || !index->defined()) continue;
    const bool is_mask = index->scalar_type() == torch::kBool || index->scalar_type() == torch::kByte;
    if (is_mask || !on_card(*index))
      note_synchronisation(op.schema().name() + (is_mask ? " by a mask" : " of the host"));
  }
  call_on_card(op, stack);
}

// Does something on a card's tensors, which is noted within a capture.
CardCapture::Tensors done(const CardCapture::Tensors& given,
                          const std::function<CardCapture::Tensors(const CardCapture::Tensors&)>& make) {
  note_work();
  CardCapture* const capture = CardCapture::of_thread();
  return capture == nullptr ? make(given) : capture->call(given, make);
}

torch::Tensor& copy(torch::Tensor& self, const torch::Tensor& source, bool non_blocking) {
  if (on_card(self) != on_card(source) && !non_blocking && self.numel() > 0) {
    note_synchronisation(c10::str("a copy of ", source.sizes(), " from ", source.device(), " to ", self.device()));
  }
  const auto make = [](const CardCapture::Tensors& given) {
    on_host(given[0]).copy_(on_host(given[1]));
    return CardCapture::Tensors{given[0]};
  };
  done({self, source}, make);
  return self;
}

torch::Tensor made(const torch::Tensor& tensor) {
  if (CardCapture* const capture = CardCapture::of_thread()) capture->note_made(tensor);
  return tensor;
}

torch::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::optional<at::ScalarType> dtype,
                            c10::optional<at::Layout> /*layout*/, c10::optional<c10::Device> device,
                            c10::optional<bool> /*pin*/) {
  const torch::Tensor host = at::empty_strided(sizes, strides, at::TensorOptions().dtype(dtype));
  return made(moved_to_card(host, card_or_current(device)));
}

torch::Tensor empty(c10::IntArrayRef sizes, c10::optional<at::ScalarType> dtype, c10::optional<at::Layout> /*layout*/,
                    c10::optional<c10::Device> device, c10::optional<bool> /*pin*/,
                    c10::optional<at::MemoryFormat> format) {
  return made(moved_to_card(at::empty(sizes, at::TensorOptions().dtype(dtype), format), card_or_current(device)));
}

torch::Tensor convolution(const torch::Tensor& input, const torch::Tensor& weight,
                          const c10::optional<torch::Tensor>& bias, c10::IntArrayRef stride, c10::IntArrayRef padding,
                          c10::IntArrayRef dilation, bool transposed, c10::IntArrayRef output_padding, int64_t groups) {
  const auto make = [transposed, groups, stride = stride.vec(), padding = padding.vec(), dilation = dilation.vec(),
                     output_padding = output_padding.vec()](const CardCapture::Tensors& given) {
    ++products;
    const auto own_bias = given[2].defined() ? c10::optional<torch::Tensor>(on_host(given[2])) : c10::nullopt;
    const torch::Tensor result = at::convolution(on_host(given[0]), on_host(given[1]), own_bias, stride, padding,
                                                 dilation, transposed, output_padding, groups);
    return CardCapture::Tensors{moved_to_card(result, given[0].device())};
  };
  return done({input, weight, bias.value_or(torch::Tensor())}, make).front();
}

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> convolution_backward(
    const torch::Tensor& gradient, const torch::Tensor& input, const torch::Tensor& weight, c10::IntArrayRef stride,
    c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed, c10::IntArrayRef output_padding,
    int64_t groups, std::array<bool, 3> mask) {
  const auto make = [transposed, groups, mask, stride = stride.vec(), padding = padding.vec(),
                     dilation = dilation.vec(),
                     output_padding = output_padding.vec()](const CardCapture::Tensors& given) {
    const auto [of_input, of_weight, of_bias] = at::convolution_backward(
        on_host(given[0]), on_host(given[1]), on_host(given[2]), c10::IntArrayRef({given[0].size(1)}), stride, padding,
        dilation, transposed, output_padding, groups, mask);
    const auto to_card = [&](const torch::Tensor& tensor) {
      return tensor.defined() ? moved_to_card(tensor, given[1].device()) : tensor;
    };
    return CardCapture::Tensors{to_card(of_input), to_card(of_weight), to_card(of_bias)};
  };
  const CardCapture::Tensors results = done({gradient, input, weight}, make);
  return {results[0], results[1], results[2]};
}

void register_kernels() {
  static std::vector<std::unique_ptr<torch::Library>> libraries;
  const auto open = [&](const char* ns) -> torch::Library& {
    libraries.push_back(
        std::make_unique<torch::Library>(torch::Library::IMPL, ns, c10::make_optional(kCardKey), __FILE__, __LINE__));
    return *libraries.back();
  };
  open("_").fallback(torch::CppFunction::makeFromBoxedFunction<&call_on_card>());
  torch::Library& aten = open("aten");
  aten.impl("empty.memory_format", empty);
  aten.impl("empty_strided", empty_strided);
  aten.impl("copy_", copy);
  aten.impl("convolution_overrideable", convolution);
  aten.impl("convolution_backward_overrideable", convolution_backward);
  const auto exists = [](const char* name) {
    const std::string_view whole(name);
    const std::size_t dot = whole.find('.');
    return c10::Dispatcher::singleton()
        .findSchema({"aten::" + std::string(whole.substr(0, dot)),
                     dot == std::string_view::npos ? "" : std::string(whole.substr(dot + 1))})
        .has_value();
  };
  for (const char* name : kWaitedFor) {
    if (exists(name)) aten.impl(name, torch::CppFunction::makeFromBoxedFunction<&wait_for_card>());
  }
  for (const char* name : {"index.Tensor", "_index_put_impl_"}) {
    aten.impl(name, torch::CppFunction::makeFromBoxedFunction<&index_on_card>());
  }
}

// ---- The back end.

class CardEvent final : public DeviceEvent {
 public:
  void wait(std::span<const torch::Tensor> /*tensors*/) const override {}
  bool reached() const override { return true; }
};

class CardStream final : public DeviceStream {
 public:
  explicit CardStream(c10::Device device) : device_(device) {}
  torch::Tensor copy(const torch::Tensor& host) override { return host.to(device_, /*non_blocking=*/true); }
  torch::Tensor make_staging(int64_t bytes) override {
    ++locks;
    return at::empty({bytes}, at::TensorOptions(torch::kByte));
  }
  std::shared_ptr<const DeviceEvent> record() override { return std::make_shared<CardEvent>(); }
  // A copy is as late as it can be, so that whoever does not wait for it, or writes to its source, is found out.
  void fetch(const torch::Tensor& tensor, const torch::Tensor& host) override { late_.emplace_back(tensor, host); }
  void synchronize() override {
    note_synchronisation("what it was given and the copies to the host");
    for (const auto& [tensor, host] : late_) host.copy_(on_host(tensor));
    late_.clear();
  }

 private:
  c10::Device device_;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> late_;
};

// Does not have to be waited for once the card has work of the next step, which it begins when it has the number.
class CardNumber final : public ArrivingNumber {
 public:
  explicit CardNumber(const torch::Tensor& number) : value_(on_host(number).item().toDouble()) {}
  double value() const override {
    if (products == products_then_) note_synchronisation("a number of the same step");
    return value_;
  }

 private:
  double value_;
  int64_t products_then_ = products;
};

constexpr int64_t kBytes = int64_t{16} << 30;
std::atomic<bool> each_has_a_processor = false;

class CardBackend final : public DeviceBackend {
 public:
  explicit CardBackend(int cards) : cards_(cards) {}

  std::string_view type() const override { return "GPU"; }
  torch::DeviceType torch_type() const override { return kCard; }
  int count() const override { return cards_; }
  torch::Device device(int index) const override { return {kCard, static_cast<c10::DeviceIndex>(index)}; }
  bool is_host() const override { return false; }
  kernels::Reach kernels() const override { return kernels::Reach::kHost; }  // its memory is
  bool trains_in(torch::ScalarType /*dtype*/) const override { return true; }
  bool is_card() const override { return true; }
  DeviceDetails details(torch::Device device) const override {
    return {.device_name = "stand-in", .compute_capability = std::pair(7, 5), .numa_node = device.index()};
  }
  std::vector<int> near_processors(torch::Device device) const override {
    return each_has_a_processor ? std::vector<int>{device.index()} : std::vector<int>();
  }
  MemoryInfo memory(torch::Device device) const override {
    const int64_t total = limit_of_card() > 0 ? limit_of_card() : kBytes;
    const int64_t in_use = bytes_on_card(device.index());
    return {.total = total, .available = total - in_use, .in_use = in_use, .peak = most_bytes_on_card(device.index())};
  }
  std::optional<AllocatorFigures> allocator(torch::Device device) const override {
    const MemoryInfo now = memory(device);
    return AllocatorFigures{.in_use = now.in_use, .peak = now.peak, .reserved = now.in_use, .peak_reserved = now.peak};
  }
  void prepare() const override { begin_convolution_search(); }
  // What kernels of the host make of denormal numbers does not depend on who calls them.
  void begin_kernel(std::span<const torch::Tensor> tensors, const std::function<void()>& kernel) const override {
    note_work();
    const auto begun = [kernel] {
      const FlushDenormals flush;
      kernel();
    };
    if (CardCapture* const capture = CardCapture::of_thread()) return capture->call(tensors, begun);
    begun();
  }
  bool captures() const override { return true; }
  std::unique_ptr<DeviceGraph> make_graph(torch::Device /*device*/,
                                          const std::vector<at::Generator>& /*generators*/) const override {
    return make_card_graph();
  }
  at::Generator make_generator(torch::Device device) const override {
    return at::make_generator<CardGenerator>(device, make_host_generator(host_generator().current_seed()));
  }
  std::shared_ptr<const ArrivingNumber> fetch(const torch::Tensor& number) const override {
    return std::make_shared<CardNumber>(number);
  }
  std::unique_ptr<LeavingTensors> leave(const std::vector<torch::Tensor>& tensors) const override {
    return leave_beside(tensors, /*pins=*/false);
  }
  std::unique_ptr<DeviceStream> make_stream(torch::Device device) const override {
    return std::make_unique<CardStream>(device);
  }
  torch::Tensor host_memory(int64_t size, torch::ScalarType dtype) const override {
    return at::full({size}, std::numeric_limits<double>::quiet_NaN(), at::TensorOptions().dtype(dtype));
  }
  std::unique_ptr<SideStreams> make_side_streams(const std::vector<torch::Device>& devices) const override {
    return make_late_streams(devices.size());
  }

 private:
  int cards_;
};

}  // namespace

void stand_in_for_cards(int cards) {
  static const bool kDone = [cards] {
    static const CardGuard guard(cards);
    static const c10::impl::DeviceGuardImplRegistrar registrar(kCard, &guard);
    register_kernels();
    put_device_backend(std::make_unique<CardBackend>(cards));
    return true;
  }();
  (void)kDone;
}

int64_t synchronisations() {
  return waits;
}

int64_t page_locks() {
  return locks;
}

void put_cards_near_processors(bool near) {
  each_has_a_processor = near;
}

StreamWaits::StreamWaits() {
  stream_waits = &list_;
}

StreamWaits::~StreamWaits() {
  stream_waits = nullptr;
}

FewBytesMore::FewBytesMore(int64_t bytes) {
  set_limit_of_card(bytes_on_card(0) + bytes);
}

FewBytesMore::~FewBytesMore() {
  set_limit_of_card(0);
}

TellsSynchronisations::TellsSynchronisations() {
  ++tellers;
}

TellsSynchronisations::~TellsSynchronisations() {
  --tellers;
}

}  // namespace cohort::gpu
