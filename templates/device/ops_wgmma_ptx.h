// wgmma m64nNk16 with the weights as register operand A: part of the NVRTC backend (see ops.h). PTX takes every accumulator
// register by number, so the operand lists are glued from runs of four: one run per eight tokens.
#pragma once

// clang-format off
#define W4MOE_RUN1 "%0,%1,%2,%3"
#define W4MOE_RUN2 W4MOE_RUN1 "," "%4,%5,%6,%7"
#define W4MOE_RUN3 W4MOE_RUN2 "," "%8,%9,%10,%11"
#define W4MOE_RUN4 W4MOE_RUN3 "," "%12,%13,%14,%15"
#define W4MOE_RUN5 W4MOE_RUN4 "," "%16,%17,%18,%19"
#define W4MOE_RUN6 W4MOE_RUN5 "," "%20,%21,%22,%23"
#define W4MOE_RUN7 W4MOE_RUN6 "," "%24,%25,%26,%27"
#define W4MOE_RUN8 W4MOE_RUN7 "," "%28,%29,%30,%31"
#define W4MOE_RUN9 W4MOE_RUN8 "," "%32,%33,%34,%35"
#define W4MOE_RUN10 W4MOE_RUN9 "," "%36,%37,%38,%39"
#define W4MOE_RUN11 W4MOE_RUN10 "," "%40,%41,%42,%43"
#define W4MOE_RUN12 W4MOE_RUN11 "," "%44,%45,%46,%47"
#define W4MOE_RUN13 W4MOE_RUN12 "," "%48,%49,%50,%51"
#define W4MOE_RUN14 W4MOE_RUN13 "," "%52,%53,%54,%55"
#define W4MOE_RUN15 W4MOE_RUN14 "," "%56,%57,%58,%59"
#define W4MOE_RUN16 W4MOE_RUN15 "," "%60,%61,%62,%63"
#define W4MOE_RUN17 W4MOE_RUN16 "," "%64,%65,%66,%67"
#define W4MOE_RUN18 W4MOE_RUN17 "," "%68,%69,%70,%71"
#define W4MOE_RUN19 W4MOE_RUN18 "," "%72,%73,%74,%75"
#define W4MOE_RUN20 W4MOE_RUN19 "," "%76,%77,%78,%79"
#define W4MOE_RUN21 W4MOE_RUN20 "," "%80,%81,%82,%83"
#define W4MOE_RUN22 W4MOE_RUN21 "," "%84,%85,%86,%87"
#define W4MOE_RUN23 W4MOE_RUN22 "," "%88,%89,%90,%91"
#define W4MOE_RUN24 W4MOE_RUN23 "," "%92,%93,%94,%95"
#define W4MOE_RUN25 W4MOE_RUN24 "," "%96,%97,%98,%99"
#define W4MOE_RUN26 W4MOE_RUN25 "," "%100,%101,%102,%103"
#define W4MOE_RUN27 W4MOE_RUN26 "," "%104,%105,%106,%107"
#define W4MOE_RUN28 W4MOE_RUN27 "," "%108,%109,%110,%111"
#define W4MOE_RUN29 W4MOE_RUN28 "," "%112,%113,%114,%115"
#define W4MOE_RUN30 W4MOE_RUN29 "," "%116,%117,%118,%119"
#define W4MOE_RUN31 W4MOE_RUN30 "," "%120,%121,%122,%123"
#define W4MOE_RUN32 W4MOE_RUN31 "," "%124,%125,%126,%127"
#define W4MOE_OUT(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define W4MOE_OUT1 W4MOE_OUT(0)
#define W4MOE_OUT2 W4MOE_OUT1, W4MOE_OUT(4)
#define W4MOE_OUT3 W4MOE_OUT2, W4MOE_OUT(8)
#define W4MOE_OUT4 W4MOE_OUT3, W4MOE_OUT(12)
#define W4MOE_OUT5 W4MOE_OUT4, W4MOE_OUT(16)
#define W4MOE_OUT6 W4MOE_OUT5, W4MOE_OUT(20)
#define W4MOE_OUT7 W4MOE_OUT6, W4MOE_OUT(24)
#define W4MOE_OUT8 W4MOE_OUT7, W4MOE_OUT(28)
#define W4MOE_OUT9 W4MOE_OUT8, W4MOE_OUT(32)
#define W4MOE_OUT10 W4MOE_OUT9, W4MOE_OUT(36)
#define W4MOE_OUT11 W4MOE_OUT10, W4MOE_OUT(40)
#define W4MOE_OUT12 W4MOE_OUT11, W4MOE_OUT(44)
#define W4MOE_OUT13 W4MOE_OUT12, W4MOE_OUT(48)
#define W4MOE_OUT14 W4MOE_OUT13, W4MOE_OUT(52)
#define W4MOE_OUT15 W4MOE_OUT14, W4MOE_OUT(56)
#define W4MOE_OUT16 W4MOE_OUT15, W4MOE_OUT(60)
#define W4MOE_OUT17 W4MOE_OUT16, W4MOE_OUT(64)
#define W4MOE_OUT18 W4MOE_OUT17, W4MOE_OUT(68)
#define W4MOE_OUT19 W4MOE_OUT18, W4MOE_OUT(72)
#define W4MOE_OUT20 W4MOE_OUT19, W4MOE_OUT(76)
#define W4MOE_OUT21 W4MOE_OUT20, W4MOE_OUT(80)
#define W4MOE_OUT22 W4MOE_OUT21, W4MOE_OUT(84)
#define W4MOE_OUT23 W4MOE_OUT22, W4MOE_OUT(88)
#define W4MOE_OUT24 W4MOE_OUT23, W4MOE_OUT(92)
#define W4MOE_OUT25 W4MOE_OUT24, W4MOE_OUT(96)
#define W4MOE_OUT26 W4MOE_OUT25, W4MOE_OUT(100)
#define W4MOE_OUT27 W4MOE_OUT26, W4MOE_OUT(104)
#define W4MOE_OUT28 W4MOE_OUT27, W4MOE_OUT(108)
#define W4MOE_OUT29 W4MOE_OUT28, W4MOE_OUT(112)
#define W4MOE_OUT30 W4MOE_OUT29, W4MOE_OUT(116)
#define W4MOE_OUT31 W4MOE_OUT30, W4MOE_OUT(120)
#define W4MOE_OUT32 W4MOE_OUT31, W4MOE_OUT(124)
#define W4MOE_WGMMA(tokens, runs, a0, a1, a2, a3, b0)                                                             \
  template <>                                                                                                     \
  struct WgmmaRs<DType::bf16, tokens> {                                                                           \
    static W4MOE_INLINE void add(float (&d)[tokens / 2], const u32 (&a)[4], u64 b) {                              \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #tokens "k16.f32.bf16.bf16 {" W4MOE_RUN##runs "}, "        \
                   "{%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b0 ", 1, 1, 1, 0;"                              \
                   : W4MOE_OUT##runs                                                                              \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                         \
    }                                                                                                             \
  };

namespace w4moe::ops {

template <DType T, i32 N>
struct WgmmaRs;

W4MOE_WGMMA(8, 1, 4, 5, 6, 7, 8)
W4MOE_WGMMA(16, 2, 8, 9, 10, 11, 12)
W4MOE_WGMMA(24, 3, 12, 13, 14, 15, 16)
W4MOE_WGMMA(32, 4, 16, 17, 18, 19, 20)
W4MOE_WGMMA(40, 5, 20, 21, 22, 23, 24)
W4MOE_WGMMA(48, 6, 24, 25, 26, 27, 28)
W4MOE_WGMMA(56, 7, 28, 29, 30, 31, 32)
W4MOE_WGMMA(64, 8, 32, 33, 34, 35, 36)
W4MOE_WGMMA(72, 9, 36, 37, 38, 39, 40)
W4MOE_WGMMA(80, 10, 40, 41, 42, 43, 44)
W4MOE_WGMMA(88, 11, 44, 45, 46, 47, 48)
W4MOE_WGMMA(96, 12, 48, 49, 50, 51, 52)
W4MOE_WGMMA(104, 13, 52, 53, 54, 55, 56)
W4MOE_WGMMA(112, 14, 56, 57, 58, 59, 60)
W4MOE_WGMMA(120, 15, 60, 61, 62, 63, 64)
W4MOE_WGMMA(128, 16, 64, 65, 66, 67, 68)
W4MOE_WGMMA(136, 17, 68, 69, 70, 71, 72)
W4MOE_WGMMA(144, 18, 72, 73, 74, 75, 76)
W4MOE_WGMMA(152, 19, 76, 77, 78, 79, 80)
W4MOE_WGMMA(160, 20, 80, 81, 82, 83, 84)
W4MOE_WGMMA(168, 21, 84, 85, 86, 87, 88)
W4MOE_WGMMA(176, 22, 88, 89, 90, 91, 92)
W4MOE_WGMMA(184, 23, 92, 93, 94, 95, 96)
W4MOE_WGMMA(192, 24, 96, 97, 98, 99, 100)
W4MOE_WGMMA(200, 25, 100, 101, 102, 103, 104)
W4MOE_WGMMA(208, 26, 104, 105, 106, 107, 108)
W4MOE_WGMMA(216, 27, 108, 109, 110, 111, 112)
W4MOE_WGMMA(224, 28, 112, 113, 114, 115, 116)
W4MOE_WGMMA(232, 29, 116, 117, 118, 119, 120)
W4MOE_WGMMA(240, 30, 120, 121, 122, 123, 124)
W4MOE_WGMMA(248, 31, 124, 125, 126, 127, 128)
W4MOE_WGMMA(256, 32, 128, 129, 130, 131, 132)

}  // namespace w4moe::ops
// clang-format on
