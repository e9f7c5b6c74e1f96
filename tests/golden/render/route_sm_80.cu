#include "w4moe_variant.h"
#include "kernels/route.cuh"
