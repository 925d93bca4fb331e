#pragma once

// Test cases of every op as functions of a tested Backend and a ReferenceBackend, for each table entry
// (row_cases(), rope_table_cases(), ...).
#include "tests/kernels/attention_cases.h"
#include "tests/kernels/draw_cases.h"
#include "tests/kernels/experts_cases.h"
#include "tests/kernels/linear_cases.h"
#include "tests/kernels/rerotate_cases.h"
#include "tests/kernels/row_cases.h"
#include "tests/kernels/step_cases.h"
