#pragma once
#include "kernels/host_weight.h"

namespace lariat::cpu {

// lay_out() (kernels/host_weight.h), bitwise identical, on several threads. `to`: rows of the weight from
// `first_row` on, a multiple of kQuantRows.
void lay_out_rows(const HostWeight& from, int64_t first_row, const Matrix& to, int threads);

// lariat::put_codes(), bitwise identical.
void put_codes(const uint8_t* codes, const QuantLayout& layout, uint8_t* tile);

}  // namespace lariat::cpu
