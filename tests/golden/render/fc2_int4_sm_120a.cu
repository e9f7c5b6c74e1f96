#include "w4moe_variant.h"
#include "kernels/fc2.cuh"
