// The number of cores of this machine and how many of them an operation of LibTorch may use.
#pragma once

#include <string>

namespace cohort {

// Returns the number of cores that this process may use, after its affinity and its cgroup's quota (rounded up).
int hardware_cores();

// While it lives, the operations that this thread calls use `threads` cores through OpenMP, whose setting is per
// thread. The pool of OpenBLAS's pthread build is one a process; it is set to one thread, because under several
// replicas a shared pool costs many times what it gains, and handing a small product to another core costs more than
// computing it. Nearly free when nothing changes.
class IntraOpThreads {
 public:
  explicit IntraOpThreads(int threads);
  IntraOpThreads(const IntraOpThreads&) = delete;
  IntraOpThreads& operator=(const IntraOpThreads&) = delete;
  ~IntraOpThreads();

 private:
  int before_;
};

// Returns the core type that OpenBLAS runs with ("Haswell"), or "" if there is no OpenBLAS.
std::string blas_core();

// Returns the OPENBLAS_CORETYPE that would be faster on this CPU, or "" if the one in use is right. OpenBLAS reads it
// when it is loaded, before main().
std::string better_blas_core();

}  // namespace cohort
