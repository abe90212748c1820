/* SPDX-License-Identifier: MIT */
/* Any bytes as the settings of a run that a peer sends. What is accepted is spelt in one way, and
 * nothing comes with it that does not travel. */
#include "agent/config/options.h"
#include "agent/node/run_settings.h"
#include "net/limits.h"

#include <stdlib.h>
#include <string.h>

#define MUST(x)                  \
	do {                     \
		if (!(x))        \
			abort(); \
	} while (0)

static bool none[CONFIG_SETTINGS_MAX];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct config theirs, mine;
	struct manifest m;
	struct buf again;
	struct err e = {0};
	config_defaults(&mine);
	strcpy(mine.data.path, "/mine");
	buf_init(&again, SETTINGS_BYTES_MAX);
	if (run_settings_read(&theirs, &m, data, size, &e)) {
		MUST(e.code && e.msg[0]);
	} else {
		MUST(run_settings_take(&mine, &theirs, none, &e) == 0);
		MUST(strcmp(mine.data.path, "/mine") == 0 && !mine.agent.keys[0]);
		MUST(!mine.run.init_from[0] && !mine.agent.owner[0]);
		MUST(run_settings_print(&mine, &m, &again) == 0);
		MUST(again.len == size && memcmp(again.data, data, size) == 0);
	}
	buf_close(&again);
	config_close(&theirs);
	config_close(&mine);
	return 0;
}
