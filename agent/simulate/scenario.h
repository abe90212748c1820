/* SPDX-License-Identifier: MIT */
/* A scenario: a fleet, its network, what happens to them and when, a method, a model and data. One
 * JSON file with comments, read as strictly as a config.
 *
 *     {
 *       "name": "home-8", "model": "mlp", "data": {…}, "train": {…}, "gossip": {…},
 *       "agents": {…}, "network": {…}, "method": {…}, "record": {…},
 *       "events": [{"at_s": 60, "what": "crash", "agents": [3, 4]}, …]
 *     }
 *
 * model, data, train and gossip have the keys of a config file (agent/config/setting_rows.h) and
 * fill `config`; gossip is read by the method "dunlin" alone. The other sections are the rows of
 * scenario_rows.h. The length of a run is train.epochs by the run's clock, as in a flock: all
 * agents together. */
#ifndef DUNLIN_AGENT_SIMULATE_SCENARIO_H
#define DUNLIN_AGENT_SIMULATE_SCENARIO_H

#include "agent/config/config.h"

#define SCENARIO_AGENTS_MAX 4096
#define SCENARIO_EVENTS_MAX 1024
#define SCENARIO_SEEDS_MAX 100

/* Places in the lists of words of scenario_rows.h. */
enum scenario_speed { SPEED_EQUAL, SPEED_UNIFORM, SPEED_LOGNORMAL };
enum scenario_split {
	SPLIT_IID,       /* all samples, each agent in an order of its own */
	SPLIT_SHARED,    /* one order; agent i of n takes every n-th batch of it */
	SPLIT_SHARD,     /* disjoint parts of equal size */
	SPLIT_DIRICHLET, /* disjoint parts, Dirichlet(alpha) over the labels */
	SPLIT_LABELS,    /* disjoint parts of `labels` labels each */
};
enum scenario_wire { SIM_WIRE_FP32, SIM_WIRE_BF16 };
enum scenario_topology {
	TOPOLOGY_RING,
	TOPOLOGY_EXPONENTIAL,
	TOPOLOGY_ONE_PEER,
	TOPOLOGY_COMPLETE,
};

enum scenario_control { CONTROL_NONE, CONTROL_MEASURE, CONTROL_SHARE, CONTROL_GRADIENT };
enum scenario_control_by { CONTROL_BY_TRUTH, CONTROL_BY_ESTIMATE };

enum scenario_what {
	EVENT_JOIN,      /* agents that were not there at the start: see agents.absent */
	EVENT_LEAVE,     /* announced */
	EVENT_CRASH,     /* not announced */
	EVENT_PAUSE,     /* for for_s seconds: it neither trains nor answers */
	EVENT_SLOW,      /* steps take `factor` times as long from now on */
	EVENT_PARTITION, /* these agents on one side, all others on the other */
	EVENT_HEAL,      /* no partition any more */
	EVENT_BAD,       /* from now on they send noise of `factor` times their parameters' norm */
};

struct scenario_event {
	double at_s;
	enum scenario_what what;
	double for_s;     /* EVENT_PAUSE */
	double factor;    /* EVENT_SLOW, EVENT_BAD */
	uint32_t *agents; /* owned; ascending, each below agents.count; NULL with EVENT_HEAL */
	uint32_t n_agents;
};

struct scenario {
	char name[LIMIT_NAME];
	struct config config; /* model, data, train, gossip; the rest is at its defaults */

	/* struct { … } agents, network, method, record: a field for each row */
#define INT(section, field, ...) int64_t field;
#define REAL(section, field, ...) double field;
#define BOOL(section, field, ...) bool field;
#define CHOICE(section, field, ...) int field;
#define SECTION(name) struct {
#define END(name) \
	}         \
	name;
#include "agent/simulate/scenario_rows.h"

	struct scenario_event *events; /* owned, by time, then in the file's order */
	int n_events;
};

void scenario_defaults(struct scenario *s);
void scenario_close(struct scenario *s);

/* A file, or bytes in memory, over the defaults. What is wrong is added to p with its line, all of
 * it at once, and keeps the value that it had. 0, or a negative code when something was added. */
int scenario_load(struct scenario *s, const char *path, struct config_problems *p) MUST_CHECK;
int scenario_read(
        struct scenario *s, const char *text, size_t len, struct config_problems *p) MUST_CHECK;

/* What single settings cannot tell. After reading. */
int scenario_check(const struct scenario *s, struct config_problems *p) MUST_CHECK;

/* A file that scenario_load reads back to equal settings: with comments the example of `simulate
 * init`, without it everything that is needed to repeat a run. */
int scenario_print(const struct scenario *s, bool comments, struct buf *out) MUST_CHECK;

/* The name of the method, "gossip_pair". */
const char *scenario_method(const struct scenario *s);

#endif
