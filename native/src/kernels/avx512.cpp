#define TMC_ISA avx512
#include "body.hpp"
