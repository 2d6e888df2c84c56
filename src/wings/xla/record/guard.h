// LibTorch's device guard for the devices that are recorded: which one is a thread's current one, and how many there
// are.
#pragma once

namespace cohort::record {

// Registers the guard with LibTorch, for the rest of the process.
void register_guard(int devices);

}  // namespace cohort::record
