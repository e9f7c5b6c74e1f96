#include "w4moe_variant.h"
#include "kernels/fc1.cuh"
