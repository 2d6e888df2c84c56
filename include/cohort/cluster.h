// Clusters: their members, and the strategies that span several processes.
#pragma once

#include "cohort/cluster/cluster_coordinator.h"        // IWYU pragma: export
#include "cohort/cluster/cluster_resolver.h"           // IWYU pragma: export
#include "cohort/cluster/cluster_spec.h"               // IWYU pragma: export
#include "cohort/cluster/consistency.h"                // IWYU pragma: export
#include "cohort/cluster/mpi_resolver.h"               // IWYU pragma: export
#include "cohort/cluster/multi_worker_mesh.h"          // IWYU pragma: export
#include "cohort/cluster/multi_worker_pipeline.h"      // IWYU pragma: export
#include "cohort/cluster/multi_worker_strategy.h"      // IWYU pragma: export
#include "cohort/cluster/parameter_server_strategy.h"  // IWYU pragma: export
#include "cohort/cluster/partitioners.h"               // IWYU pragma: export
#include "cohort/cluster/per_worker_dataset.h"         // IWYU pragma: export
#include "cohort/cluster/remote_value.h"               // IWYU pragma: export
#include "cohort/cluster/scheduler_resolvers.h"        // IWYU pragma: export
#include "cohort/cluster/security.h"                   // IWYU pragma: export
#include "cohort/cluster/sharded_variable.h"           // IWYU pragma: export
#include "cohort/cluster/tpu_resolver.h"               // IWYU pragma: export
#include "cohort/cluster/tpu_topology.h"               // IWYU pragma: export
#include "cohort/cluster/xla_strategy.h"               // IWYU pragma: export
