// The test framework, whichever of its two major versions is installed (Debian 12 has 2, later ones have 3).
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
