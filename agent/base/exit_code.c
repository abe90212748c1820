/* SPDX-License-Identifier: MIT */
#include "agent/base/exit_code.h"

int exit_code(int err_code, int busy_with)
{
	switch (err_code) {
	case 0:
		return EXIT_OK;
	case ERR_NONFINITE:
		return EXIT_DIVERGED;
	case ERR_DEVICE:
		return EXIT_DEVICE;
	case ERR_USAGE:
		return EXIT_USAGE;
	case ERR_STALE:
		return EXIT_STALE;
	case ERR_NOMEM:
	case ERR_SYSTEM:
		return EXIT_FAILED;
	default:
		return busy_with;
	}
}
