// How many cores there are and how many of them an operation of LibTorch may use.
#pragma once

#include <string>

namespace cohort {

// Cores that this process may use: its affinity, and a cgroup's quota (rounded up).
int hardware_cores();

// While it lives, operations that this thread calls use `threads` cores through OpenMP, whose setting is per thread.
// The pool of OpenBLAS's pthread build is one a process; it is set to one thread, because under several replicas a
// shared pool costs many times what it gains, and handing a small product to another core costs more than computing it.
// Nearly free when nothing changes.
class IntraOpThreads {
 public:
  explicit IntraOpThreads(int threads);
  IntraOpThreads(const IntraOpThreads&) = delete;
  IntraOpThreads& operator=(const IntraOpThreads&) = delete;
  ~IntraOpThreads();

 private:
  int before_;
};

// The core type that OpenBLAS runs with ("Haswell"), empty when there is no OpenBLAS.
std::string blas_core();

// The OPENBLAS_CORETYPE that this CPU would be faster with; empty when the one in use is right. OpenBLAS reads it when
// it is loaded, before main().
std::string better_blas_core();

}  // namespace cohort
