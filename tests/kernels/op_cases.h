#pragma once

// Tables of cases of every op (row_cases(), ...) and their checks of a tested Backend vs a ReferenceBackend.
#include "tests/kernels/attention_cases.h"
#include "tests/kernels/draw_cases.h"
#include "tests/kernels/experts_cases.h"
#include "tests/kernels/linear_cases.h"
#include "tests/kernels/rerotate_cases.h"
#include "tests/kernels/row_cases.h"
#include "tests/kernels/step_cases.h"
