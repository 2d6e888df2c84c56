// Arrays on devices, and the copies between them and the host.
#include <utility>

#include "base/fail.h"
#include "wings/xla/device/event.h"
#include "wings/xla/device/state.h"

namespace cohort {

namespace {

// Returns the tensor as PJRT can read it: dense, in row-major order.
torch::Tensor dense(const torch::Tensor& tensor, const XlaPlugin& plugin) {
  if (!tensor.defined()) fail<InvalidArgument>(plugin.speaker(), ": a tensor to copy is not defined");
  if (!tensor.device().is_cpu() || tensor.layout() != torch::kStrided) {
    fail<InvalidArgument>(plugin.speaker(), ": a tensor to copy is on ", tensor.device(), " with the layout ",
                          tensor.layout(), ", wanted a dense one of the CPU");
  }
  return tensor.detach().resolve_conj().resolve_neg().contiguous();
}

pjrt::HostBufferSemantics semantics_of(XlaHostMemory memory) {
  switch (memory) {
    case XlaHostMemory::kCopied:
      return pjrt::kImmutableOnlyDuringCall;
    case XlaHostMemory::kKept:
      return pjrt::kImmutableUntilTransferCompletes;
    case XlaHostMemory::kShared:
      return pjrt::kImmutableZeroCopy;
  }
  return pjrt::kImmutableOnlyDuringCall;
}

void destroy(const XlaPlugin& plugin, pjrt::Buffer* buffer) {
  pjrt::BufferDestroyArgs args;
  args.buffer = buffer;
  plugin.release(&pjrt::Api::buffer_destroy, "PJRT_Buffer_Destroy", args);
}

}  // namespace

std::shared_ptr<const XlaShape> shape_of_buffer(const XlaPlugin& plugin, pjrt::Buffer* buffer) {
  pjrt::BufferElementTypeArgs type;
  type.buffer = buffer;
  plugin.call(&pjrt::Api::buffer_element_type, "PJRT_Buffer_ElementType", type);
  pjrt::BufferDimensionsArgs sizes;
  sizes.buffer = buffer;
  plugin.call(&pjrt::Api::buffer_dimensions, "PJRT_Buffer_Dimensions", sizes);
  return std::make_shared<const XlaShape>(
      XlaShape{static_cast<XlaType>(type.type), {sizes.dims, sizes.dims + sizes.num_dims}});
}

XlaBuffer XlaClient::to_device(const torch::Tensor& tensor, int device, XlaType type) const {
  return upload(tensor, device, XlaHostMemory::kCopied, type).buffer;
}

XlaUpload XlaClient::upload(const torch::Tensor& tensor, int device, XlaHostMemory memory, XlaType type) const {
  const torch::Tensor host = dense(tensor, plugin());
  auto shape = std::make_shared<XlaShape>();
  shape->type = type == XlaType::kInvalid ? xla_type(host.scalar_type()) : type;
  shape->sizes = host.sizes().vec();
  if (size_of(shape->type) != static_cast<int64_t>(host.element_size())) {
    fail<InvalidArgument>(plugin().speaker(), ": a tensor of ", host.scalar_type(), " cannot become ",
                          name_of(shape->type), ", whose size is another");
  }
  if (!this->device(device).local) {
    fail<InvalidArgument>(plugin().speaker(), ": the device ", device, " is another process's");
  }
  pjrt::ClientBufferFromHostBufferArgs args;
  args.client = state_->client.get();
  args.data = host.data_ptr();
  args.type = static_cast<int>(shape->type);
  args.dims = shape->sizes.data();
  args.num_dims = shape->sizes.size();
  args.host_buffer_semantics = semantics_of(memory);
  args.device = state_->handles.at(device);
  plugin().call(&pjrt::Api::client_buffer_from_host_buffer, "PJRT_Client_BufferFromHostBuffer", args);
  XlaUpload upload;
  const auto done =
      std::make_shared<XlaEvent::State>(state_->plugin, std::vector{args.done_with_host_buffer},
                                        "the copy of " + shape->to_text() + " to a device", state_->processes);
  upload.buffer =
      XlaBuffer(std::make_shared<XlaBuffer::State>(shared_from_this(), args.buffer, std::move(shape), device));
  if (memory != XlaHostMemory::kCopied) {
    done->keep(host);
    upload.host_done = XlaEvent(done);
  }
  return upload;
}

XlaBuffer::State::~State() {
  if (taken == nullptr) {
    destroy(plugin(), buffer);
  } else {
    client->state().donated.add(buffer, std::move(taken));
  }
}

void DonatedBuffers::add(pjrt::Buffer* buffer, std::shared_ptr<XlaEvent::State> taken) {
  const std::scoped_lock lock(mutex_);
  buffers_.push_back({buffer, std::move(taken)});
}

void DonatedBuffers::destroy_taken(const XlaPlugin& plugin) {
  std::vector<Donated> done;
  {
    const std::scoped_lock lock(mutex_);
    // Launches end about in the order in which they have begun.
    while (!buffers_.empty() && buffers_.front().taken->ready()) {
      done.push_back(std::move(buffers_.front()));
      buffers_.pop_front();
    }
  }
  for (const Donated& each : done) destroy(plugin, each.buffer);
}

void DonatedBuffers::destroy_all(const XlaPlugin& plugin) {
  const std::scoped_lock lock(mutex_);
  for (const Donated& each : buffers_) destroy(plugin, each.buffer);
  buffers_.clear();
}

XlaBuffer::State& XlaBuffer::state() const {
  if (state_ == nullptr) fail<FailedPrecondition>("[xla] a buffer is used that stands for no array");
  return *state_;
}

const XlaShape& XlaBuffer::shape() const {
  return *state().shape;
}

int XlaBuffer::device() const {
  return state().device;
}

bool XlaBuffer::deleted() const {
  return state().deleted;
}

void XlaBuffer::erase() const {
  if (state().deleted.exchange(true)) return;
  pjrt::BufferDeleteArgs args;
  args.buffer = state_->buffer;
  state_->plugin().call(&pjrt::Api::buffer_delete, "PJRT_Buffer_Delete", args);
}

XlaEvent XlaBuffer::ready() const {
  pjrt::BufferReadyEventArgs args;
  args.buffer = state().buffer;
  state_->plugin().call(&pjrt::Api::buffer_ready_event, "PJRT_Buffer_ReadyEvent", args);
  const std::string what = c10::str("the computation of ", shape().to_text(), " on device ", device());
  return XlaEvent(std::make_shared<XlaEvent::State>(state_->client->state().plugin, std::vector{args.event}, what,
                                                    state_->client->state().processes));
}

XlaHostCopy XlaBuffer::copy_to_host() const {
  if (state().deleted) {
    fail<FailedPrecondition>(state_->plugin().speaker(), ": the buffer ", shape().to_text(), " on device ", device(),
                             " cannot be copied to the host: it was donated to a launch or erased");
  }
  torch::Tensor host = torch::empty(shape().sizes, torch_type(shape().type));
  if (host.numel() == 0) return {host, XlaEvent()};
  std::vector<int64_t> order(shape().sizes.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(order.size() - 1 - i);
  pjrt::MemoryLayout layout;  // without it the values would come in the device's order
  layout.tiled.minor_to_major = order.data();
  layout.tiled.minor_to_major_size = order.size();
  pjrt::BufferToHostBufferArgs args;
  args.src = state_->buffer;
  args.host_layout = &layout;
  args.dst = host.data_ptr();
  args.dst_size = host.nbytes();
  state_->plugin().call(&pjrt::Api::buffer_to_host_buffer, "PJRT_Buffer_ToHostBuffer", args);
  const auto done = std::make_shared<XlaEvent::State>(
      state_->client->state().plugin, std::vector{args.event},
      c10::str("the copy of ", shape().to_text(), " from device ", device(), " to the host"),
      state_->client->state().processes);
  done->keep(host);  // the plugin writes to it even if nobody waits
  return {host, XlaEvent(done)};
}

XlaBuffer XlaBuffer::copy_to(int device) const {
  const XlaClient& client = *state().client;
  if (device == state_->device || !client.device(device).local) {
    fail<InvalidArgument>(client.plugin().speaker(), ": a buffer on device ", state_->device,
                          " cannot be copied to device ", device, ", wanted another device of this process");
  }
  pjrt::BufferCopyToDeviceArgs args;
  args.buffer = state_->buffer;
  args.dst_device = client.state().handles.at(device);
  client.plugin().call(&pjrt::Api::buffer_copy_to_device, "PJRT_Buffer_CopyToDevice", args);
  return XlaBuffer(std::make_shared<State>(state_->client, args.dst_buffer, state_->shape, device));
}

std::uintptr_t XlaBuffer::address() const {
  pjrt::BufferUnsafePointerArgs args;
  args.buffer = state().buffer;
  state_->plugin().call(&pjrt::Api::buffer_unsafe_pointer, "PJRT_Buffer_UnsafePointer", args);
  return args.buffer_pointer;
}

}  // namespace cohort
