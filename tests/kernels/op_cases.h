#pragma once

// Every op's cases, as functions over Backend: a backend is tested by calling them with itself and a
// ReferenceBackend, for each entry of the tables (row_cases(), rope_table_cases(), ...).
#include "tests/kernels/attention_cases.h"
#include "tests/kernels/draw_cases.h"
#include "tests/kernels/experts_cases.h"
#include "tests/kernels/linear_cases.h"
#include "tests/kernels/rerotate_cases.h"
#include "tests/kernels/row_cases.h"
#include "tests/kernels/step_cases.h"
