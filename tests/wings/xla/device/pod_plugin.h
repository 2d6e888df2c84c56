// A pod for tests: a plugin over another one (XLA's for CPUs, POD_PLUGIN), whose devices it gives out as those of
// several processes. Each process has all of them, tells that its own are an equal part, and computes a program of all
// processes on all devices, with the values that the other processes bring, which lie in files of POD_FOLDER meanwhile.
// So numbers are XLA's own, and a launch waits for the other processes as on a TPU: for ever, where one of them is lost
// and POD_HANGS is set; without it, it fails as a device does that hears of it. A process dies in the launch whose
// number POD_DIES is.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "wings/xla/device/pjrt_programs.h"

namespace cohort::pjrt {

struct Error {  // those of this plugin; the other one's are opaque
  ErrorCode code;
  std::string message;
};

// A program and its devices.
struct Loaded {
  std::vector<Device*> all;
  std::vector<Device*> own;
  std::size_t outputs = 0;
};

struct Pod {
  const Api* real = nullptr;
  Client* client = nullptr;
  int node = 0;
  int nodes = 1;
  int devices_of_node = 1;
  ClientCreateArgs store;  // the functions of the caller's store
  std::mutex mutex;
  std::map<LoadedExecutable*, Loaded> programs;
  std::vector<Error*> errors;  // that are alive
  int64_t launches = 0;        // of all processes
};
Pod& pod();

// Makes an error of this plugin.
Error* make_error(ErrorCode code, const char* message, std::size_t size);
void error_destroy(ErrorDestroyArgs* args);

// Returns the number of a device, and whether it is one of this process.
int id_of(DeviceDescription* description);
int id_of(Device* device);
bool is_own(Device* device);

// Runs a program; one of all processes together with them.
Error* execute(LoadedExecutableExecuteArgs* args);

}  // namespace cohort::pjrt

#define TRY(call) \
  if (Error* const failure = call) return failure
