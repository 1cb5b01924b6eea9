#define TMC_ISA baseline
#include "collectives/kernels/body.hpp"
