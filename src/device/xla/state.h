// The state behind the handles of client.h.
#pragma once

#include <atomic>
#include <map>
#include <mutex>

#include "device/xla/client.h"

namespace cohort {

// Returns the handle with what destroys it.
template <typename Handle, typename Args>
std::shared_ptr<Handle> owned(const XlaPluginPtr& plugin, Handle* handle, Handle* Args::*member,
                              pjrt::Function<Args> pjrt::Api::*destroy, const char* operation) {
  return std::shared_ptr<Handle>(handle, [=](Handle* own) {
    Args args;
    args.*member = own;
    plugin->release(destroy, operation, args);
  });
}

// Returns what the plugin tells of a device. It is taken for one of this process.
XlaDevice describe_device(const XlaPlugin& plugin, pjrt::DeviceDescription* description);

class XlaClient::State {
 public:
  XlaPluginPtr plugin;
  std::shared_ptr<XlaProcesses> processes;  // null: this one alone; the plugin's client uses them as long as it lives
  std::shared_ptr<pjrt::Client> client;
  std::string platform;
  std::string platform_version;
  int process = 0;
  std::vector<XlaDevice> devices;
  std::vector<int> local_devices;
  std::map<int, pjrt::Device*> handles;  // by id
  mutable std::mutex launches;           // held while a program of several devices is begun
  mutable int launches_with_others = 0;  // of programs of several processes, under that lock
};

class XlaBuffer::State {
 public:
  // Takes the buffer over.
  State(XlaClientPtr client, pjrt::Buffer* buffer, std::shared_ptr<const XlaShape> shape, int device)
      : client(std::move(client)), buffer(buffer), shape(std::move(shape)), device(device) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  const XlaPlugin& plugin() const { return client->plugin(); }

  const XlaClientPtr client;
  pjrt::Buffer* const buffer;
  const std::shared_ptr<const XlaShape> shape;
  const int device;
  std::atomic<bool> deleted = false;
};

// Returns the shape that the plugin tells for a buffer.
std::shared_ptr<const XlaShape> shape_of_buffer(const XlaPlugin& plugin, pjrt::Buffer* buffer);

class XlaExecutable::State {
 public:
  XlaClientPtr client;
  std::shared_ptr<pjrt::LoadedExecutable> loaded;
  std::shared_ptr<const XlaProgram> program;
  std::vector<XlaSlot> slots;
  std::vector<std::shared_ptr<const XlaShape>> outputs;  // empty if the plugin does not tell them beforehand
};

// Returns CompileOptionsProto as bytes. `devices` has an id for each replica and partition.
std::string encode_options(const XlaCompileOptions& options, const std::vector<int>& devices);
// Fails if the options make no sense, whatever the devices are.
void check_options(const XlaCompileOptions& options);

}  // namespace cohort
