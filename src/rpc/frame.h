// Frame: what tasks send each other: a protobuf message, and tensors as they lie in memory, which are neither copied
// into protobuf fields nor, on the way out, copied at all.
//
//   "CPS1", the size of a FrameHead (uint32), the FrameHead, the elements of its tensors one after the other
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

// No frame is longer: larger values go in several, so that neither end has to hold much for them.
constexpr int kLongestFrame = 64 << 20;

// The size into which HTTP/2 cuts what is sent; its own default is 16 KiB.
constexpr int kHttp2Frame = 4 << 20;

// The tensors' memory is part of the frame until it is sent: nobody may write to it. They are on the CPU and
// contiguous. InvalidArgument: a dtype that frames do not have, or a message of more than 4 MiB.
Frame make_frame(const google::protobuf::MessageLite& message, std::span<const torch::Tensor> tensors = {});

// A floating-point value in the type that it is to travel in; others, and NONE, as they are.
torch::Tensor on_the_way(const torch::Tensor& value, rpc::ElementType type);

// Reads what another process sent, which may be anything. DataLoss: cut short, too long, or nonsense; it is found by
// the constructor, before any memory is taken for tensors.
class FrameReader {
 public:
  FrameReader(const Frame& frame, google::protobuf::MessageLite& message);

  // Of tensors that have not been taken.
  std::size_t left() const { return shapes_.size() - next_; }
  // Of the next one. DataLoss: there is none.
  const std::vector<int64_t>& sizes() const;
  torch::ScalarType dtype() const;

  // The next tensor.
  torch::Tensor take();
  // Copies it into `out`, which is contiguous, on the CPU and has its sizes (DataLoss), and whose dtype it is converted
  // to.
  void take_into(const torch::Tensor& out);
  // DataLoss unless all of them have been taken.
  void finish() const;

 private:
  struct Shape {
    torch::ScalarType dtype;
    std::vector<int64_t> sizes;
    uint64_t bytes;
  };

  void read_shapes(const rpc::FrameHead& head);
  const Shape& next_shape() const;
  uint64_t bytes_left() const;
  void take_bytes(void* out);  // of the next tensor
  void read(void* out, uint64_t size);

  std::vector<grpc::Slice> slices_;
  std::size_t slice_ = 0;
  std::size_t offset_ = 0;  // in it
  std::vector<Shape> shapes_;
  std::size_t next_ = 0;
};

}  // namespace cohort
