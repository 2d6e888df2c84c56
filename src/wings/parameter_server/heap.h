// Settings of the C library's heap.
#pragma once

namespace cohort {

// Keeps up to 256 MiB of freed memory in the process instead of returning it to the system at once. A process that
// receives large messages repeatedly would otherwise spend more time on page faults than on copies (1.5 times the
// throughput over loopback was measured). Affects the whole process. May be called by any thread, any number of times.
void keep_freed_memory();

}  // namespace cohort
