// The table, errors and events; see fake_plugin.h.
#include "tests/wings/xla/device/fake_plugin.h"

#include <csignal>
#include <thread>

#include "tests/wings/xla/device/fake_objects.h"

namespace cohort::testing {

using namespace pjrt;  // NOLINT: the plugin is made of its names

namespace {

void call_back(const std::pair<EventCallback, void*>& callback) {
  const auto& [code, message] = fake().event_failure;
  callback.first(code == 0 ? nullptr : new Error{code, message}, callback.second);
}

Error* event_destroy(EventDestroyArgs* args) {
  BEGIN("Event_Destroy");
  delete args->event;
  return nullptr;
}
Error* event_on_ready(EventOnReadyArgs* args) {
  BEGIN("Event_OnReady");
  const std::shared_ptr<Event::State> state = args->event->state;
  {
    const std::lock_guard lock(state->mutex);
    if (!state->happened) {
      state->callbacks.emplace_back(args->callback, args->user_arg);
      return nullptr;
    }
  }
  call_back({args->callback, args->user_arg});
  return nullptr;
}

void error_destroy(ErrorDestroyArgs* args) {
  delete args->error;
}
void error_message(ErrorMessageArgs* args) {
  args->message = args->error->message.data();
  args->message_size = args->error->message.size();
}
Error* error_code(ErrorGetCodeArgs* args) {
  args->code = static_cast<ErrorCode>(args->error->code);
  return nullptr;
}
Error* initialize(PluginInitializeArgs*) {
  std::signal(SIGTERM, [](int) {});  // as libtpu does
  BEGIN("Plugin_Initialize");
  return nullptr;
}
Error* attributes(PluginAttributesArgs* args) {
  BEGIN("Plugin_Attributes");
  static NamedValue version;
  version.name = "xla_version";
  version.name_size = 11;
  version.type = kInt64;
  version.int64_value = 2;
  version.value_size = 1;
  args->attributes = &version;
  args->num_attributes = 1;
  return nullptr;
}

// Takes out what the test wants to be lacking. Its names are those that can be.
void leave_out(Api& api) {
  const auto& lacking = fake().lacking;
  if (lacking.contains("Error_GetCode")) api.error_get_code = nullptr;
  if (lacking.contains("Client_Compile")) api.client_compile = nullptr;
  if (lacking.contains("Executable_OptimizedProgram")) api.executable_optimized_program = nullptr;
  if (lacking.contains("Device_MemoryStats")) api.device_memory_stats = nullptr;
}

}  // namespace

void fill_table(Api& api) {
  api.error_destroy = error_destroy;
  api.error_message = error_message;
  api.error_get_code = error_code;
  api.plugin_initialize = initialize;
  api.plugin_attributes = attributes;
  api.event_destroy = event_destroy;
  api.event_on_ready = event_on_ready;
  fill_devices(api);
  fill_buffers(api);
  fill_programs(api);
  leave_out(api);
}

FakePlugin& fake() {
  static FakePlugin& plugin = *std::make_unique<FakePlugin>().release();  // backends use it until the process ends
  return plugin;
}

Error* begin(const std::string& function) {
  {
    const std::lock_guard lock(fake().mutex);
    fake().calls.push_back(function);
  }
  if (const auto delay = fake().delays.find(function); delay != fake().delays.end()) {
    std::this_thread::sleep_for(delay->second);
  }
  if (const auto gate = fake().gates.find(function); gate != fake().gates.end()) gate->second.wait();
  const auto failure = fake().failures.find(function);
  return failure == fake().failures.end() ? nullptr : new Error{failure->second.first, failure->second.second};
}

Event* new_event() {
  auto* event = new Event;
  const auto happen = [state = event->state] {
    std::vector<std::pair<EventCallback, void*>> list;
    {
      const std::lock_guard lock(state->mutex);
      state->happened = true;
      list.swap(state->callbacks);
    }
    for (const auto& callback : list) call_back(callback);
  };
  if (fake().events_hang) {
    const std::lock_guard lock(fake().mutex);
    fake().hanging.emplace_back(happen);
  } else if (fake().event_delay.count() == 0) {
    happen();
  } else {
    std::thread([happen, delay = fake().event_delay] {
      std::this_thread::sleep_for(delay);
      happen();
    }).detach();
  }
  return event;
}

}  // namespace cohort::testing

extern "C" cohort::testing::FakePlugin* fake_plugin() {
  return &cohort::testing::fake();
}

extern "C" const cohort::pjrt::Api* GetPjrtApi() {
  static cohort::pjrt::Api api{};
  const cohort::testing::FakePlugin& own = cohort::testing::fake();
  if (own.no_table) return nullptr;
  api.struct_size = sizeof(api) - own.shorter_by;
  api.pjrt_api_version.major_version = own.major;
  api.pjrt_api_version.minor_version = own.minor;
  cohort::testing::fill_table(api);
  return &api;
}
