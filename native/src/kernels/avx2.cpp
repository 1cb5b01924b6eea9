#define TMC_ISA avx2
#include "body.hpp"
