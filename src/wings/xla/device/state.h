// The state behind the handles of client.h.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <mutex>

#include "wings/xla/device/event.h"

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

// Buffers whose memory was given to launches. Destroying one waits, in XLA's plugin for CPUs, until the launch has
// begun on the device and taken it: for each buffer of each launch that would be a wait of the host, and an end of
// launching ahead. So those of other plugins' launches, and of launches on one device, are kept until their launch is
// done. Thread-safe.
class DonatedBuffers {
 public:
  // Takes the buffer over. `taken` is the end of the launch that it was given to.
  void add(pjrt::Buffer* buffer, std::shared_ptr<XlaEvent::State> taken);
  // Destroys those whose launches are done.
  void destroy_taken(const XlaPlugin& plugin);
  // Destroys all, which may wait.
  void destroy_all(const XlaPlugin& plugin);

 private:
  struct Donated {
    pjrt::Buffer* buffer = nullptr;
    std::shared_ptr<XlaEvent::State> taken;
  };
  std::mutex mutex_;
  std::deque<Donated> buffers_;
};

class XlaClient::State {
 public:
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (client != nullptr) donated.destroy_all(*plugin);
  }

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
  mutable DonatedBuffers donated;
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
  std::shared_ptr<XlaEvent::State> taken;  // the end of the launch until which it is kept, or null
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
