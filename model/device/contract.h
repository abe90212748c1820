/* SPDX-License-Identifier: MIT */
/* Compilers may contract a·b + c into one fused operation with one rounding, on processors that
 * have it. A function that must give the same bits on all machines is declared UNCONTRACTED and
 * begins with UNCONTRACTED_BODY. */
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
