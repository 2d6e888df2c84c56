// Frame: the unit that tasks send each other. It is a protobuf message and tensors as they lie in memory, which are not
// copied into protobuf fields and, on the way out, not copied at all.
//
//   "CPS2", the size of a FrameHead (uint32), the checksum of all that follows (uint32, CRC32C), the FrameHead, the
//   elements of its tensors one after the other
//
// All numbers are little-endian.
#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>
#include <torch/types.h>

#include <cstdint>
#include <span>
#include <vector>

#include "frame.pb.h"

namespace cohort {

using Frame = grpc::ByteBuffer;

// The longest frame, in bytes. Larger values travel in several frames, so that neither end has to buffer much.
constexpr int kLongestFrame = 64 << 20;

// The size into which HTTP/2 cuts what is sent; its own default is 16 KiB.
constexpr int kHttp2Frame = 4 << 20;

// Returns a frame of the message and the tensors, which are contiguous and on the CPU. Their memory is part of the
// frame, so nobody may write to it until the frame is sent. InvalidArgument: frames do not have the dtype, or the
// message has more than 4 MiB.
Frame make_frame(const google::protobuf::MessageLite& message, std::span<const torch::Tensor> tensors = {});

// Returns a floating-point value in the type that it is to travel in. Other values, and all with NONE, stay as they
// are.
torch::Tensor on_the_way(const torch::Tensor& value, rpc::ElementType type);

// Reads the bytes that another process sent, which may be anything. The constructor throws DataLoss if they are cut
// short, too long, nonsense or changed on the way, before any memory is allocated for tensors.
class FrameReader {
 public:
  FrameReader(const Frame& frame, google::protobuf::MessageLite& message);

  // Returns the number of tensors that have not been taken.
  std::size_t left() const { return shapes_.size() - next_; }
  // Returns the sizes of the next tensor. DataLoss: there is none.
  const std::vector<int64_t>& sizes() const;
  torch::ScalarType dtype() const;

  // Takes the next tensor and returns it.
  torch::Tensor take();
  // Takes the next tensor and copies it into `out`, which is contiguous and on the CPU. The values are converted to the
  // dtype of `out`. DataLoss: `out` has other sizes.
  void take_into(const torch::Tensor& out);
  // Throws DataLoss unless all tensors have been taken.
  void finish() const;

 private:
  struct Shape {
    torch::ScalarType dtype;
    std::vector<int64_t> sizes;
    uint64_t bytes;
  };

  void read_shapes(const rpc::FrameHead& head);
  uint32_t checksum() const;  // of all bytes that have not been read
  const Shape& next_shape() const;
  uint64_t bytes_left() const;
  void take_bytes(void* out);  // copies the bytes of the next tensor
  void read(void* out, uint64_t size);

  std::vector<grpc::Slice> slices_;
  std::size_t slice_ = 0;
  std::size_t offset_ = 0;  // the position in the bytes
  std::vector<Shape> shapes_;
  std::size_t next_ = 0;
};

}  // namespace cohort
