// The tests' own plugin: a shared library with GetPjrtApi whose devices are memory of the host and whose programs
// return their arguments. It notes which functions are called, and does what a test tells it: fail, be slow, lack a
// function, have another version. Without a test that tells it what to do, it has two devices, and takes the peak of a
// program's memory from its text, "peak 1234".
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace cohort::testing {

struct FakePlugin {
  std::mutex mutex;                // of `calls`
  std::vector<std::string> calls;  // the functions, without PJRT_

  // Set before the plugin is loaded.
  int major = 0;
  int minor = 81;
  bool no_table = false;          // GetPjrtApi returns null
  std::set<std::string> lacking;  // functions whose entry is null
  std::size_t shorter_by = 0;     // the bytes that the table's struct_size leaves out at its end

  std::map<std::string, std::pair<int, std::string>> failures;  // the code and message that a function returns
  std::map<std::string, std::chrono::milliseconds> delays;      // how long a function takes
  std::map<std::string, std::shared_future<void>> gates;        // what a function waits for
  std::chrono::milliseconds event_delay{0};                     // how long after its call an event happens
  bool events_hang = false;                                     // no event happens
  std::pair<int, std::string> event_failure;                    // how events fail; code 0: they do not

  std::string platform = "fake";
  int devices = 2;             // of all processes
  int processes = 1;           // whose devices follow each other
  int process = 0;             // this one
  bool shares = false;         // making a client puts "from P" under the key "process/P" and gets those of all others
  int store_limit_ms = 10000;  // the longest wait for each of them
  std::vector<std::string> shared;  // what the others have put, and what was said of a key that nobody puts
  std::map<std::string, int64_t> whole_options;  // the whole numbers among the last client's options
  int replicas = 1;                              // of each program
  int partitions = 1;
  std::size_t outputs = 1;        // of each program: the first arguments
  std::set<std::size_t> donated;  // the parameters whose buffers a launch takes
  // The bytes of each optimised program: at first, of one without parameters and with an output f32[].
  std::string optimized = std::string("\x0a\x06\x22\x04\x12\x02\x10\x0b", 8);
  std::string compiled;  // the text that was compiled last
  std::string options;   // the bytes of its options

  // The objects that are alive.
  std::atomic<int> buffers = 0;
  std::atomic<int> clients = 0;
  std::atomic<int> executables = 0;
  std::vector<std::function<void()>> hanging;  // what lets each event happen that hangs

  std::size_t count(const std::string& function) {
    const std::lock_guard lock(mutex);
    std::size_t count = 0;
    for (const std::string& call : calls) count += call == function ? 1 : 0;
    return count;
  }
};

// The plugin exports this: extern "C" FakePlugin* fake_plugin().
using FakePluginEntry = FakePlugin* (*)();

}  // namespace cohort::testing
