#include "wings/mpi/cluster/mpi_runtime.h"

#include <atomic>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "wings/mpi/cluster/mpi_api.h"

namespace cohort {

namespace {

std::atomic<bool> abandoned = false;

class Runtime {
 public:
  Runtime() {
    int running = 0;
    MPI_Initialized(&running);
    if (running == 0) {
      int level = MPI_THREAD_SINGLE;
      MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
      ours_ = true;
    }
    MPI_Query_thread(&level_);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime() {
    if (ours_ && !abandoned) MPI_Finalize();
  }

  bool any_thread_may_call() const { return level_ >= MPI_THREAD_MULTIPLE; }

 private:
  bool ours_ = false;
  int level_ = MPI_THREAD_SINGLE;
};

void require_success(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail<Unavailable>("[cluster] ", call, ": ", text);
}

}  // namespace

bool has_mpi() {
  return true;
}

void start_mpi() {
  static const Runtime runtime;
  if (runtime.any_thread_may_call()) return;
  fail<Unavailable>("[cluster] mpi: this MPI library does not let several threads call it (MPI_THREAD_MULTIPLE)");
}

void require_mpi_size(int size) {
  start_mpi();
  int found = 0;
  require_success(MPI_Comm_size(MPI_COMM_WORLD, &found), "MPI_Comm_size");
  if (found == size) return;
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  require_success(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
  const std::string_view whole = text;
  const std::string_view library = whole.substr(0, whole.find_first_of(",\n"));
  fail<FailedPrecondition>("[cluster] mpi: the launcher has started ", size, " processes, but MPI sees ", found,
                           ": this build has ", library, ", wanted its own mpirun; or export MASTER_ADDR and ",
                           "MASTER_PORT, and train with --all_reduce_alg=ring, which needs no MPI");
}

std::string mpi_broadcast(const std::string& mine) {
  start_mpi();
  std::string text = mine;
  auto size = static_cast<int>(text.size());
  require_success(MPI_Bcast(&size, 1, MPI_INT, 0, MPI_COMM_WORLD), "MPI_Bcast");
  text.resize(static_cast<std::size_t>(size));
  require_success(MPI_Bcast(text.data(), size, MPI_CHAR, 0, MPI_COMM_WORLD), "MPI_Bcast");
  return text;
}

void abandon_mpi(std::shared_ptr<const void> used) {
  abandoned = true;
  static std::mutex mutex;
  static std::vector<std::shared_ptr<const void>> kept;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(used));
}

}  // namespace cohort
