// SPDX-License-Identifier: Apache-2.0
#define TMC_ISA avx512
#include "collectives/kernels/body.hpp"
