// HostReads: notices a value that the host reads, which a trace would keep as a constant.
#pragma once

#include <ATen/record_function.h>

#include <string>

namespace cohort::exports {

// Watches the operations of the calling thread while it lives.
class HostReads {
 public:
  HostReads();
  HostReads(const HostReads&) = delete;
  HostReads& operator=(const HostReads&) = delete;
  ~HostReads();

  // Returns the first operation that has read a value; empty: there was none.
  static const std::string& first();

 private:
  at::CallbackHandle handle_;
};

}  // namespace cohort::exports
