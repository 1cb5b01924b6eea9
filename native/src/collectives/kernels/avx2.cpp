// SPDX-License-Identifier: Apache-2.0
#define TMC_ISA avx2
#include "collectives/kernels/body.hpp"
