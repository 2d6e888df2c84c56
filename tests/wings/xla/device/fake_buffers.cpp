// Arrays; see fake_plugin.h.
#include <cstring>

#include "tests/wings/xla/device/fake_objects.h"

namespace cohort::testing {

using namespace pjrt;  // NOLINT: the plugin is made of its names

namespace {

Error* from_host(ClientBufferFromHostBufferArgs* args) {
  BEGIN("Client_BufferFromHostBuffer");
  auto* buffer = new Buffer{args->type, {args->dims, args->dims + args->num_dims}, ""};
  std::size_t bytes = 4;  // the tests use float32
  for (const int64_t size : buffer->dims) bytes *= static_cast<std::size_t>(size);
  buffer->bytes.assign(static_cast<const char*>(args->data), bytes);
  args->buffer = buffer;
  args->done_with_host_buffer = new_event();
  ++fake().buffers;
  return nullptr;
}
Error* buffer_destroy(BufferDestroyArgs* args) {
  BEGIN("Buffer_Destroy");
  --fake().buffers;
  delete args->buffer;
  return nullptr;
}
Error* element_type(BufferElementTypeArgs* args) {
  BEGIN("Buffer_ElementType");
  args->type = args->buffer->type;
  return nullptr;
}
Error* dimensions(BufferDimensionsArgs* args) {
  BEGIN("Buffer_Dimensions");
  args->dims = args->buffer->dims.data();
  args->num_dims = args->buffer->dims.size();
  return nullptr;
}
Error* buffer_delete(BufferDeleteArgs* args) {
  BEGIN("Buffer_Delete");
  args->buffer->deleted = true;
  return nullptr;
}
Error* is_deleted(BufferIsDeletedArgs* args) {
  BEGIN("Buffer_IsDeleted");
  args->is_deleted = args->buffer->deleted;
  return nullptr;
}
Error* to_host(BufferToHostBufferArgs* args) {
  BEGIN("Buffer_ToHostBuffer");
  std::memcpy(args->dst, args->src->bytes.data(), args->src->bytes.size());
  args->event = new_event();
  return nullptr;
}
Error* ready_event(BufferReadyEventArgs* args) {
  BEGIN("Buffer_ReadyEvent");
  args->event = new_event();
  return nullptr;
}

}  // namespace

void fill_buffers(Api& api) {
  api.client_buffer_from_host_buffer = from_host;
  api.buffer_destroy = buffer_destroy;
  api.buffer_element_type = element_type;
  api.buffer_dimensions = dimensions;
  api.buffer_delete = buffer_delete;
  api.buffer_is_deleted = is_deleted;
  api.buffer_to_host_buffer = to_host;
  api.buffer_ready_event = ready_event;
}

}  // namespace cohort::testing
