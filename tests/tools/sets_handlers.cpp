// A library that sets a handler for SIGHUP when it is loaded, as one of Debian 13's does.
#include <csignal>

namespace {

[[gnu::constructor]] void set_handler() {
  std::signal(SIGHUP, [](int) {});
}

}  // namespace
