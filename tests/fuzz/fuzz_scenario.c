/* SPDX-License-Identifier: MIT */
/* Any bytes as a scenario of `dunlin simulate`. What is accepted must print and read back to the
 * same; what is refused must say why, in words that cannot drive a terminal. */
#include "agent/simulate/scenario.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MUST(x)                  \
	do {                     \
		if (!(x))        \
			abort(); \
	} while (0)

static void printable(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		MUST((unsigned char)text[i] >= ' ' || text[i] == '\n');
}

static void events(const struct scenario *s)
{
	MUST(s->n_events >= 0 && s->n_events <= SCENARIO_EVENTS_MAX);
	for (int k = 0; k < s->n_events; k++) {
		const struct scenario_event *v = &s->events[k];

		MUST(k == 0 || s->events[k - 1].at_s <= v->at_s);
		for (uint32_t i = 0; i < v->n_agents; i++)
			MUST(v->agents[i] < s->agents.count &&
			        (i == 0 || v->agents[i - 1] <= v->agents[i]));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct scenario s, again;
	static struct config_problems p;
	struct buf out, out_again;

	scenario_defaults(&s);
	scenario_defaults(&again);
	config_problems_init(&p, "f.json");
	buf_init(&out, 64 << 20);
	buf_init(&out_again, 64 << 20);
	int rc = scenario_read(&s, (const char *)data, size, &p);
	const bool accepted = rc == 0;

	MUST(accepted == (p.n == 0));
	rc = scenario_check(&s, &p);
	MUST((rc == 0 && accepted) == (p.n == 0));
	if (p.n == 0)
		events(&s);
	MUST(config_problems_text(&p, &out) == 0);
	printable(out.data ? out.data : "", out.len);
	printable(s.name, strlen(s.name));
	buf_close(&out);
	buf_init(&out, 64 << 20);
	config_problems_init(&p, NULL);
	MUST(!accepted || scenario_print(&s, false, &out) == 0);
	if (accepted && out.len <= LIMIT_CONFIG_BYTES) {
		MUST(scenario_read(&again, out.data, out.len, &p) == 0);
		MUST(scenario_print(&again, false, &out_again) == 0);
		MUST(strcmp(out.data, out_again.data) == 0);
	}
	buf_close(&out);
	buf_close(&out_again);
	scenario_close(&s);
	scenario_close(&again);
	return 0;
}
