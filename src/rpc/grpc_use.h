// GrpcUse: makes the last user of gRPC wait until gRPC has shut down. gRPC destroys connections on threads of its own,
// which must not do that while the program ends: then gRPC would shut down beside the destructors of static objects.
#pragma once

namespace cohort {

// Counts as a user while it exists. Whoever has channels or a server has one that is destroyed after them. The
// destructor of the last one waits. It does not wait if the program itself used gRPC before, because gRPC stays then.
// Thread-safe.
class GrpcUse {
 public:
  GrpcUse();
  GrpcUse(const GrpcUse&) = delete;
  GrpcUse& operator=(const GrpcUse&) = delete;
  ~GrpcUse();
};

}  // namespace cohort
