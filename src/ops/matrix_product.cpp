// LibTorch asks its BLAS, which in Debian is OpenBLAS: for float32 oneDNN, which Debian's LibTorch brings along for
// convolutions, is faster. On a Zen 5, one core, 64 x 784 by 784 x 256 takes 114 us in place of 135, its gradient of
// the weights 101 in place of 112, and where OpenBLAS does not know the CPU, half the time; with AVX2 it gains 6 %. It
// takes pointers. Where oneDNN is a part of LibTorch that shows no functions, as in PyPI's, LibTorch multiplies.
//
// Some of oneDNN's kernels keep their buffer where the stack pointer points to (`mov(rsp, ARG_WS)` in
// jit_avx512_common_gemm_f32.cpp and jit_avx_gemm_f32.cpp, versions 2.6 to 3.x): the handler of a signal that comes
// then writes over memory of others. So no signal comes to the thread while it multiplies, and it multiplies alone and
// in pieces that take some milliseconds, after which pending signals come.
#include "ops/matrix_product.h"

#include <ATen/Functions.h>
#include <dlfcn.h>
#include <omp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "ops/kernels/isa.h"

namespace cohort {

namespace {

// A function of oneDNN's C interface, the same in versions 1 to 3 (https://oneapi-src.github.io/oneDNN, "BLAS-like
// functions"). Computes C = alpha op(A) op(B) + beta C for matrices that lie row by row. Returns 0 or an error.
using Sgemm = int(char transa, char transb, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
                  const float* b, int64_t ldb, float beta, float* c, int64_t ldc);

Sgemm* onednn() {
  static auto* const found = kernels::best_isa() == kernels::Isa::kBaseline  // for which it has no fast product
                                 ? nullptr
                                 : reinterpret_cast<Sgemm*>(dlsym(RTLD_DEFAULT, "dnnl_sgemm"));
  return found;
}

// Holds back all signals of this thread, those that glibc keeps for itself, too, which pthread_sigmask() leaves out.
class NoSignals {
 public:
  NoSignals() { set(~uint64_t{0}, &before_); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;
  ~NoSignals() { set(before_, nullptr); }

 private:
  static void set(uint64_t blocked, uint64_t* before) {
    ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &blocked, before, sizeof(blocked));
  }
  uint64_t before_ = 0;
};

// oneDNN takes the threads of OpenMP, whose signals nobody holds back.
class OneThread {
 public:
  OneThread() {
    if (before_ != 1) omp_set_num_threads(1);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }

 private:
  int before_ = omp_get_max_threads();
};

// A matrix as arguments of a BLAS.
struct Matrix {
  explicit Matrix(const torch::Tensor& tensor)
      : transposed(tensor.stride(1) != 1 && tensor.size(1) != 1),
        fits(tensor.stride(transposed ? 0 : 1) == 1 || tensor.size(transposed ? 0 : 1) == 1),
        leading(std::max(tensor.stride(transposed ? 1 : 0), tensor.size(transposed ? 0 : 1))),
        values(tensor.data_ptr<float>()) {}

  char op() const { return transposed ? 'T' : 'N'; }
  float* row(int64_t number) const { return values + number * (transposed ? 1 : leading); }

  bool transposed;
  bool fits;
  int64_t leading;  // elements from one row, or column, to the next
  float* values;
};

// Stores a b + beta result.
bool multiplied_by_onednn(const torch::Tensor& result, const torch::Tensor& a, const torch::Tensor& b, float beta) {
  if (result.scalar_type() != torch::kFloat || onednn() == nullptr) return false;
  const Matrix left(a);
  const Matrix right(b);
  const Matrix sum(result);
  if (!left.fits || !right.fits || !sum.fits || sum.transposed) return false;
  // The elements of a row, or of a column of the right matrix, lie a multiple of 4 KiB apart and fall on the same lines
  // of the first cache: OpenBLAS copies them faster, so that the product takes a tenth to a sixth less. On the right it
  // is as fast at least, and twice as fast for 64 x 9216 by 9216 x 64.
  if (left.transposed && left.leading % 1024 == 0) return false;
  if (right.transposed && right.leading % 1024 == 0) return false;
  constexpr int64_t kProducts = int64_t{1} << 29;  // of numbers, in a piece
  constexpr int64_t kRows = 64;                    // so that a piece runs nearly as fast as the whole
  const int64_t rows = result.size(0);
  const int64_t columns = result.size(1);
  const int64_t each = std::max(kRows, kProducts / std::max<int64_t>(1, columns * a.size(1)));
  const OneThread alone;
  for (int64_t row = 0; row < rows; row += each) {
    const NoSignals undisturbed;
    const int failed =
        onednn()(left.op(), right.op(), std::min(each, rows - row), columns, a.size(1), 1.0F, left.row(row),
                 left.leading, right.values, right.leading, beta, sum.row(row), sum.leading);
    // If it fails for one piece, it fails for all of them, before it writes.
    if (failed != 0) return false;
  }
  return true;
}

}  // namespace

void store_product(const torch::Tensor& result, const torch::Tensor& a, const torch::Tensor& b) {
  if (multiplied_by_onednn(result, a, b, 0.0F)) return;
  torch::Tensor out = result;
  at::mm_out(out, a, b);
}

void add_product(const torch::Tensor& result, const torch::Tensor& a, const torch::Tensor& b) {
  if (!multiplied_by_onednn(result, a, b, 1.0F)) result.addmm_(a, b);
}

}  // namespace cohort
