#include "wings/export/train/host_reads.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

namespace cohort::exports {

namespace {

// Not aten::equal, by which LibTorch's attention asks whether queries and keys are one tensor.
constexpr std::array<std::string_view, 3> kReads = {"aten::_local_scalar_dense", "aten::item", "aten::is_nonzero"};

// LibTorch's dilated convolution of one example reads its bias.
constexpr std::string_view kReadsItself = "aten::_convolution";

thread_local std::string first_read;
thread_local int in_convolutions = 0;

std::unique_ptr<at::ObserverContext> note_read(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  if (name == kReadsItself) ++in_convolutions;
  if (in_convolutions == 0 && first_read.empty() && std::find(kReads.begin(), kReads.end(), name) != kReads.end())
    first_read = name;
  return nullptr;
}

void note_end(const at::RecordFunction& function, at::ObserverContext* /*context*/) {
  if (function.name() == kReadsItself) --in_convolutions;
}

}  // namespace

HostReads::HostReads() {
  first_read.clear();
  in_convolutions = 0;
  handle_ =
      at::addThreadLocalCallback(at::RecordFunctionCallback(note_read, note_end).scopes({at::RecordScope::FUNCTION}));
}

HostReads::~HostReads() {
  at::removeCallback(handle_);
}

const std::string& HostReads::first() {
  return first_read;
}

}  // namespace cohort::exports
