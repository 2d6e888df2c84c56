// What is said when a device has no memory left.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/backend.h"
#include "strategy/memory_holders.h"

namespace cohort {

// A device's memory when there was not enough.
struct MemoryUse {
  std::string device;                         // the names of the device
  MemoryInfo memory = {};                     // its figures
  std::optional<AllocatorFigures> allocator;  // those of its allocator
  HeldBytes held = {};                        // the known holders
};
// Returns a text that says who holds how much, and what would help, the most first. `said` is what LibTorch said.
std::string out_of_memory_text(const MemoryUse& use, const std::string& said);

// Returns the figures of the allocators of those devices that have them, as numbers for logs, in GiB, the highest of
// all devices: "memory_in_use", "memory_peak" and "memory_reserved" (AllocatorFigures). None: there is no such device.
std::vector<std::pair<std::string, double>> memory_logs(const std::vector<LogicalDevice>& devices);

// To be called while an exception of LibTorch is caught in a replica's part of a run: throws one that says more, if
// there is one: FailedPrecondition with what holds the memory of the device, Unimplemented for an operation that is not
// deterministic although ComputeOptions says so.
void rethrow_explained(const c10::Error& error, const LogicalDevice& device, const MemoryHolders& holders);

// Returns a number of bytes as people read it: "3.2 GiB", "17.0 MiB".
std::string bytes_text(int64_t bytes);

}  // namespace cohort
