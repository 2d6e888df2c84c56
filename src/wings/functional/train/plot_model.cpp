// Pictures of graphs by Graphviz's program dot. It reads the graph from its standard input and writes to its standard
// output; both are files in memory, so that nobody waits for a pipe.
#include "cohort/train/plot_model.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <thread>

#include "base/atomic_file.h"
#include "base/deadline.h"
#include "base/fail.h"

namespace cohort {

namespace {

class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("plot_model", MFD_CLOEXEC)) {
    if (descriptor_ < 0) fail<Unavailable>("[model] plot_model: no file in memory: ", std::strerror(errno));
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }

  int descriptor() const { return descriptor_; }
  void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t count = ::write(descriptor_, text.data(), text.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail<Unavailable>("[model] plot_model: a file in memory: ", std::strerror(errno));
      text.remove_prefix(static_cast<std::size_t>(count));
    }
    ::lseek(descriptor_, 0, SEEK_SET);
  }
  std::string read() const {
    std::string text;
    std::array<char, 65536> piece;
    for (off_t place = 0;;) {
      const ssize_t count = ::pread(descriptor_, piece.data(), piece.size(), place);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return text;
      text.append(piece.data(), static_cast<std::size_t>(count));
      place += count;
    }
  }

 private:
  int descriptor_;
};

// Waits for a child to end. Returns its status; -1: it is not known, because the program ignores its children.
int status_of(pid_t child, const Deadline& deadline) {
  for (auto pause = std::chrono::milliseconds(1);; pause = std::min(2 * pause, std::chrono::milliseconds(50))) {
    int status = 0;
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) return status;
    if (ended < 0 && errno != EINTR) return -1;
    std::this_thread::sleep_for(pause);
    if (!deadline.passed()) continue;
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    fail<DeadlineExceeded>("[model] plot_model: the program dot did not end within ", to_text(deadline.limit()));
  }
}

std::string picture_of(const std::string& graph, const std::string& format, std::chrono::milliseconds timeout) {
  MemoryFile input, output, complaints;
  input.write(graph);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, input.descriptor(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, output.descriptor(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, complaints.descriptor(), STDERR_FILENO);
  std::string program = "dot", option = "-T" + format;
  std::array<char*, 3> arguments = {program.data(), option.data(), nullptr};
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, "dot", &actions, nullptr, arguments.data(), ::environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    fail<FailedPrecondition>("[model] plot_model: the program dot: ", std::strerror(error),
                             "; install the package graphviz, or write a .dot file");
  }
  const int status = status_of(child, Deadline(timeout));
  std::string picture = output.read();
  if ((status == -1 || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) && !picture.empty()) return picture;
  std::string said = complaints.read();
  if (said.size() > 1000) said.resize(1000);
  fail<FailedPrecondition>("[model] plot_model: the program dot failed", said.empty() ? "" : ": ", said);
}

}  // namespace

void plot_model(const Model& model, const std::filesystem::path& file, const PlotOptions& options) {
  const std::string ending = file.extension().string();
  const bool is_text = ending == ".dot" || ending == ".gv";
  if (!is_text && !ending.empty() && ending != ".png" && ending != ".svg" && ending != ".pdf") {
    fail<InvalidArgument>("[model] plot_model: the file is ", file,
                          ", wanted a name that ends in .png, .svg, .pdf, .dot or .gv");
  }
  PlotOptions own = options;
  own.show_layer_names = options.show_layer_names.value_or(false);
  const std::string graph = model_to_dot(model, own);
  AtomicFile written(file);
  written.write(is_text ? graph : picture_of(graph, ending.empty() ? "png" : ending.substr(1), options.timeout));
  written.commit();
}

}  // namespace cohort
