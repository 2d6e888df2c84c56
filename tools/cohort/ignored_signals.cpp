// What is ignored has to be noted before the first library is initialised, which is what .preinit_array is for. Nothing
// is initialised then: neither libraries nor sanitizers.
#include "ignored_signals.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>

namespace cohort::cli {

namespace {

constexpr int kSignals[] = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGUSR1, SIGUSR2};

bool ignored_at_start[NSIG];

// The system's own structure, because a sanitizer would take the library's sigaction() for itself.
struct KernelAction {
  void (*handler)(int);
  unsigned long flags;
  void (*restorer)();
  unsigned long mask;
};

__attribute__((no_sanitize("address", "thread", "undefined"))) void note_ignored(int /*argc*/, char** /*argv*/,
                                                                                 char** /*environment*/) {
  for (const int signal : kSignals) {
    KernelAction now;
    if (::syscall(SYS_rt_sigaction, signal, nullptr, &now, sizeof(now.mask)) == 0) {
      ignored_at_start[signal] = now.handler == SIG_IGN;
    }
  }
}

__attribute__((section(".preinit_array"), used)) void (*const note_first)(int, char**, char**) = note_ignored;

}  // namespace

void ignore_signals_again() {
  for (const int signal : kSignals) {
    if (ignored_at_start[signal]) ::signal(signal, SIG_IGN);
  }
}

}  // namespace cohort::cli
