// SharedMemory: memory that processes of one machine have in common. It has no name in the file system and is gone with
// the last process that has it, however that ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace cohort {

class SharedMemory {
 public:
  // The place where other processes find the memory as long as this one keeps it open.
  struct Handle {
    int64_t process = 0;
    int64_t file = 0;
  };

  // Creates memory that is filled with zeros. Unavailable: the system has none.
  static std::shared_ptr<SharedMemory> create(std::size_t bytes);
  // Opens memory of so many bytes that a process of this machine, container and user has created; it may be this
  // process. Unavailable: it is not there.
  static std::shared_ptr<SharedMemory> open(const Handle& handle, std::size_t bytes);

  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  std::span<std::byte> bytes() const { return bytes_; }
  Handle handle() const;
  // Closes the memory to processes that have not opened it; those that have it keep it.
  void close();

 private:
  SharedMemory(int file, std::size_t bytes);

  int file_;
  std::span<std::byte> bytes_;
};

}  // namespace cohort
