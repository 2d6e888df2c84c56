// FlushDenormals: arithmetic without denormal numbers. They cost a hundred times as much as normal ones on many CPUs,
// and the slots of an optimizer decay into them while gradients are zero.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace cohort {

// While it lives, this thread's float arithmetic takes denormals for zero and returns zero for them, as in TensorFlow's
// kernels. It has no effect on CPUs without such a mode.
class FlushDenormals {
 public:
  FlushDenormals() { set(get() | kFlushToZero | kDenormalsAreZero); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;
  ~FlushDenormals() { set(before_); }

 private:
  static constexpr unsigned kFlushToZero = 0x8000;
  static constexpr unsigned kDenormalsAreZero = 0x0040;

#if defined(__SSE2__)
  static unsigned get() {
    return _mm_getcsr();
  }
  static void set(unsigned mode) {
    _mm_setcsr(mode);
  }
#else
  static unsigned get() {
    return 0;
  }
  static void set(unsigned) {}
#endif

  unsigned before_ = get();
};

}  // namespace cohort
