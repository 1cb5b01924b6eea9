#define TMC_ISA avx2
#include "collectives/kernels/body.hpp"
