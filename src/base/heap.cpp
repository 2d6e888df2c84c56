#include "base/heap.h"

#include <malloc.h>

#include <mutex>

namespace cohort {

void keep_freed_memory() {
  static std::once_flag once;
  std::call_once(once, [] {
#ifdef M_TRIM_THRESHOLD                     // the GNU C library's
    ::mallopt(M_MMAP_THRESHOLD, 32 << 20);  // its largest
    ::mallopt(M_TRIM_THRESHOLD, 256 << 20);
    ::mallopt(M_TOP_PAD, 4 << 20);
#endif
  });
}

}  // namespace cohort
