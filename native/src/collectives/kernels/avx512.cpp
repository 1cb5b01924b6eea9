#define TMC_ISA avx512
#include "collectives/kernels/body.hpp"
