/* SPDX-License-Identifier: MIT */
/* Compilers may turn a·b + c into one operation with one rounding where the processor has it, and
 * not where it has not. A function that two machines must compute alike is declared UNCONTRACTED
 * and begins with UNCONTRACTED_BODY. */
#ifndef DUNLIN_MODEL_DEVICE_CONTRACT_H
#define DUNLIN_MODEL_DEVICE_CONTRACT_H

#if defined(__clang__)
#define UNCONTRACTED
#define UNCONTRACTED_BODY _Pragma("clang fp contract(off)")
#else
#define UNCONTRACTED __attribute__((optimize("fp-contract=off")))
#define UNCONTRACTED_BODY
#endif

#endif
