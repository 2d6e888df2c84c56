// A library that stops the process that loads it (SIGSTOP) at its second fork(): before it or after it, as the variable
// STOP_AT_FORK says. The first fork() of a launcher is for its guard, the second one for its first worker.
#include <dlfcn.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string_view>

namespace {

// The library's constructor sets it, perhaps before those of other objects.
enum class Place { kNone, kBefore, kAfter } place = Place::kNone;
int forks = 0;

// Keeps the variable from the processes that are started.
[[gnu::constructor]] void take_place() {
  if (const char* const given = std::getenv("STOP_AT_FORK")) {
    place = std::string_view(given) == "before" ? Place::kBefore : Place::kAfter;
  }
  ::unsetenv("STOP_AT_FORK");
}

void stop_at(Place here) {
  if (forks == 2 && place == here) ::kill(::getpid(), SIGSTOP);
}

}  // namespace

extern "C" pid_t fork() {
  static const auto system_fork = reinterpret_cast<pid_t (*)()>(::dlsym(RTLD_NEXT, "fork"));
  ++forks;
  stop_at(Place::kBefore);
  const pid_t child = system_fork();
  if (child > 0) stop_at(Place::kAfter);
  return child;
}
