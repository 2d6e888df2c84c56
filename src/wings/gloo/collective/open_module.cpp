// Stands in for gloo.cpp where LibTorch has a Gloo of another version in it and shows its names (PyPI's wheel). If two
// were linked into one program, one would get the other's functions. So gloo.cpp and the Gloo that it was compiled for
// are a module of their own, cohort_gloo, which looks for every name in itself first.
#include <dlfcn.h>

#include "base/fail.h"
#include "wings/gloo/collective/gloo.h"

namespace cohort {

namespace {

using MakeGloo = void(const Meeting& meeting, std::unique_ptr<Engine>& engine);

// It stays: threads of Gloo run in it.
MakeGloo* open_module() {
  constexpr const char* kModule = "libcohort_gloo.so";  // found by the RUNPATH of who links the library
  void* const module = ::dlopen(kModule, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND | RTLD_NODELETE);
  if (module == nullptr) fail<NotFound>("[collective] gloo: cannot open ", kModule, ": ", ::dlerror());
  auto* const make = reinterpret_cast<MakeGloo*>(::dlsym(module, "cohort_make_gloo"));
  if (make == nullptr) fail<NotFound>("[collective] gloo: ", kModule, " is not of this version: ", ::dlerror());
  return make;
}

}  // namespace

std::unique_ptr<Engine> make_gloo_engine(const Meeting& meeting) {
  static MakeGloo* const kMake = open_module();
  std::unique_ptr<Engine> engine;
  kMake(meeting, engine);
  return engine;
}

}  // namespace cohort
