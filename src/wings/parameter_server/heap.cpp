#include "wings/parameter_server/heap.h"

#include <malloc.h>

#include <mutex>

namespace cohort {

void keep_freed_memory() {
  static std::once_flag once;
  std::call_once(once, [] {
#ifdef M_TRIM_THRESHOLD                     // only the GNU C library has it
    ::mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest value that it accepts
    ::mallopt(M_TRIM_THRESHOLD, 256 << 20);
    ::mallopt(M_TOP_PAD, 4 << 20);
#endif
  });
}

}  // namespace cohort
