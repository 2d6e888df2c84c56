// Any text in TF_CONFIG either describes a cluster, which comes back the same from its JSON, or is refused with an
// error of ours.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "cohort/cluster/cluster_resolver.h"
#include "cohort/error.h"

namespace {

template <typename Fn>
void expect_ours(const Fn& fn) {
  try {
    fn();
  } catch (const cohort::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const cohort::TFConfigResolver resolver({.variables = cohort::environment_of({{"TF_CONFIG", text}})});
  expect_ours([&] {
    const cohort::ClusterSpec cluster = resolver.cluster_spec();
    const std::string json = cluster.to_json();
    if (cohort::ClusterSpec::from_json(json, "fuzz").to_json() != json) std::abort();
  });
  expect_ours([&] { (void)resolver.task(); });
  expect_ours([&] { (void)resolver.master(); });
  expect_ours([&] { (void)resolver.rpc_layer(); });
  return 0;
}
