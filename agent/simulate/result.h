/* SPDX-License-Identifier: MIT */
/* What a simulation leaves on disk, and what reports and comparisons are made from: lines of JSON,
 * result.jsonl in the folder of --out.
 *
 *     {"format":"dunlin-simulate-1","version":"0.1","name":"home-8","method":"gossip_pair",
 *      "runs":1,"scenario":"…as scenario_print writes it…"}
 *     {"run":{"failed":"","seed":1,"complete":true,…}}            and then, of this run:
 *     {"point":{"time_s":…,"samples":…,…}}
 *     {"change":{"what":"crashed","time_s":60,"agent":3,"live":7}}
 *     {"met":[from,to,count,to,count,…]}
 *
 * Members have the names of the fields of struct sim_run and struct sim_point. Numbers that are not
 * finite are null and read back as NaN. */
#ifndef DUNLIN_AGENT_SIMULATE_RESULT_H
#define DUNLIN_AGENT_SIMULATE_RESULT_H

#include "agent/simulate/engine.h"

#define RESULT_FORMAT "dunlin-simulate-1"
#define RESULT_FILE "result.jsonl"
#define RESULT_BYTES_MAX (256u << 20)

struct sim_result {
	char name[LIMIT_NAME], method[LIMIT_NAME];
	struct scenario scenario;
	struct sim_run *runs; /* owned, by seed */
	int n_runs;
};

void sim_result_close(struct sim_result *r);

/* Appends the file. */
int sim_result_print(const struct sim_result *r, struct buf *out) MUST_CHECK;

/* Reads one back; path may be anyone's file, or the folder that has it. All is checked. */
int sim_result_load(struct sim_result *r, const char *path, struct err *e) MUST_CHECK;

extern const char *const sim_change_names[]; /* "joined", "left", "crashed", … by enum */

#endif
