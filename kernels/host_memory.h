#pragma once

namespace lariat {

// Bytes that new allocations of the host may take, and of the whole machine, within a container's limits;
// infinite if /proc/meminfo is missing.
double free_host_bytes();
double all_host_bytes();

}  // namespace lariat
