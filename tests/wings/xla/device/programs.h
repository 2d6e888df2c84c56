// Programs in StableHLO for tests.
#pragma once

#include <string>

namespace cohort::xla_programs {

// f32[2,3] times f32[3,2] plus f32[2,2].
inline const char* const kMatmul = R"(module @matmul {
  func.func public @main(%a: tensor<2x3xf32>, %b: tensor<3x2xf32>, %c: tensor<2x2xf32>) -> tensor<2x2xf32> {
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>
    %1 = stablehlo.add %0, %c : tensor<2x2xf32>
    return %1 : tensor<2x2xf32>
  }
}
)";

// A step of "training": the weights, which are donated, grow by the sum over the replicas of x; the second output is
// the number of steps, whose buffer is donated, too.
inline std::string step(int replicas) {
  std::string group;
  for (int i = 0; i < replicas; ++i) group += (i > 0 ? ", " : "") + std::to_string(i);
  const std::string count = std::to_string(replicas);
  return "module @step attributes {mhlo.num_replicas = " + count + R"( : i32} {
  func.func public @main(%w: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %n: tensor<i64> {tf.aliasing_output = 1 : i32}, %x: tensor<4xf32>) -> (tensor<4xf32>, tensor<i64>) {
    %s = "stablehlo.all_reduce"(%x) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %t = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %t : tensor<f32>
    }) {replica_groups = dense<[[)" +
         group + "]]> : tensor<1x" + count + R"(xi64>} : (tensor<4xf32>) -> tensor<4xf32>
    %v = stablehlo.add %w, %s : tensor<4xf32>
    %one = stablehlo.constant dense<1> : tensor<i64>
    %m = stablehlo.add %n, %one : tensor<i64>
    return %v, %m : tensor<4xf32>, tensor<i64>
  }
}
)";
}

// A convolution of f32[1,2,8,8] whose height is divided among the partitions, by Shardy or GSPMD.
inline std::string divided_convolution(int partitions, bool shardy) {
  const std::string count = std::to_string(partitions);
  const std::string place = shardy ? R"({sdy.sharding = #sdy.sharding<@mesh, [{}, {}, {"h"}, {}]>})"
                                   : "{mhlo.sharding = \"{devices=[1,1," + count + ",1]<=[" + count + "]}\"}";
  const std::string everywhere =
      shardy ? "{sdy.sharding = #sdy.sharding<@mesh, [{}, {}, {}, {}]>}" : "{mhlo.sharding = \"{replicated}\"}";
  return "module @convolution attributes {mhlo.num_partitions = " + count + " : i32} {\n" +
         (shardy ? "  sdy.mesh @mesh = <[\"h\"=" + count + "]>\n" : std::string()) +
         "  func.func public @main(%x: tensor<1x2x8x8xf32> " + place + ", %w: tensor<3x2x3x3xf32> " + everywhere +
         ") -> (tensor<1x3x8x8xf32> " + place + R"() {
    %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {stride = [1, 1], pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x2x8x8xf32>, tensor<3x2x3x3xf32>) -> tensor<1x3x8x8xf32>
    return %0 : tensor<1x3x8x8xf32>
  }
}
)";
}

// Two replicas of two partitions: x is divided by rows, and summed over the replicas.
inline const char* const kReplicasOfTwo =
    R"(module @two_by_two attributes {mhlo.num_replicas = 2 : i32, mhlo.num_partitions = 2 : i32} {
  sdy.mesh @mesh = <["h"=2]>
  func.func public @main(%x: tensor<4x3xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"h"}, {}]>}) -> (tensor<4x3xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"h"}, {}]>}, tensor<3xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) {
    %y = "stablehlo.all_reduce"(%x) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4x3xf32>) -> tensor<4x3xf32>
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %l = stablehlo.reduce(%y init: %z) applies stablehlo.add across dimensions = [0] : (tensor<4x3xf32>, tensor<f32>) -> tensor<3xf32>
    return %y, %l : tensor<4x3xf32>, tensor<3xf32>
  }
}
)";

}  // namespace cohort::xla_programs
