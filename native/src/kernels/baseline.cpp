#define TMC_ISA baseline
#include "body.hpp"
