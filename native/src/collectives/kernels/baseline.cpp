// SPDX-License-Identifier: Apache-2.0
#define TMC_ISA baseline
#include "collectives/kernels/body.hpp"
