// The objects that the tests' own plugin is made of; see fake_plugin.h.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/wings/xla/device/fake_plugin.h"
#include "wings/xla/device/pjrt_programs.h"

namespace cohort::pjrt {

struct Error {
  int code;
  std::string message;
};
struct Event {
  struct State {
    std::mutex mutex;
    bool happened = false;
    std::vector<std::pair<EventCallback, void*>> callbacks;
  };
  std::shared_ptr<State> state = std::make_shared<State>();
};
struct DeviceDescription {
  int id;
  int process = 0;
  std::string name;
  std::vector<int64_t> coords;
  std::vector<NamedValue> attributes;
};
struct Device {
  DeviceDescription description;
  bool local = true;
};
struct Client {
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<Device*> list;
};
struct Buffer {
  int type;
  std::vector<int64_t> dims;
  std::string bytes;
  bool deleted = false;
};
struct Executable {
  std::string name = "fake";
};
struct LoadedExecutable {
  std::vector<Device*> devices;
};
struct TopologyDescription {
  std::vector<std::unique_ptr<DeviceDescription>> devices;
  std::vector<DeviceDescription*> list;
};
struct SerializedExecutable {
  std::string bytes;
};

}  // namespace cohort::pjrt

namespace cohort::testing {

// Returns what the test controls.
FakePlugin& fake();
// Notes the call, waits as long as the test wants it, and returns the error that the test wants, or null.
pjrt::Error* begin(const std::string& function);
// Returns an event that happens as the test wants it.
pjrt::Event* new_event();

// Fill a part of the table.
void fill_devices(pjrt::Api& api);
void fill_buffers(pjrt::Api& api);
void fill_programs(pjrt::Api& api);

}  // namespace cohort::testing

#define BEGIN(function) \
  if (Error* const failure = cohort::testing::begin(function)) return failure
