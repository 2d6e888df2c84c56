// How values are divided among the cores of a replica, in Shardy's terms: there is one axis "core" with all cores of a
// replica, of which each dimension that is cut takes a part, the first one the slowest. XLA's partitioner divides all
// operations by the annotations that it finds, and adds the exchange of borders.
#include "wings/xla/record/stablehlo/sharding.h"

#include <c10/util/StringUtil.h>
#include <c10/util/accumulate.h>

#include "base/fail.h"
#include "wings/xla/record/stablehlo/families.h"

namespace cohort::record::stablehlo {

namespace {

void shard(Lowering& op) {
  const Operand x = op.in(0);
  const Dims tiles = op.ints(1);
  const int64_t wanted = c10::multiply_integers(tiles);
  if (wanted != 1 && wanted != op.cores()) {
    fail<InvalidArgument>("[record] a tensor of ", type_text(x), " is cut in ", list_text(tiles), " tiles, which are ",
                          wanted, ", but the program runs on ", op.cores(), " core(s) a replica");
  }
  op.set(0, op.cores() == 1 ? x : op.text().shard(x, tiles));
}

constexpr OperationInfo kSharding[] = {
    {kShardOp, shard, 0, false, nullptr, true},
};

}  // namespace

std::string mesh_text(int cores) {
  return "  sdy.mesh @cores = <[\"core\"=" + std::to_string(cores) + "]>\n";
}

std::string sharding_text(const Dims& tiles) {
  const int64_t all = c10::multiply_integers(tiles);
  std::string text = "<@cores, [";
  int64_t before = 1;
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    text += i == 0 ? "{" : ", {";
    if (tiles[i] == all && all > 1) {
      text += "\"core\"";
    } else if (tiles[i] > 1) {
      text += "\"core\":(" + std::to_string(before) + ")" + std::to_string(tiles[i]);
    }
    before *= tiles[i];
    text += "}";
  }
  return text + "]>";
}

std::string whole_text(int64_t rank) {
  return "sdy.sharding = #sdy.sharding" + sharding_text(Dims(static_cast<std::size_t>(rank), 1));
}

std::span<const OperationInfo> sharding_operations() {
  return kSharding;
}

}  // namespace cohort::record::stablehlo
