/* SPDX-License-Identifier: MIT */
/* What the parts of a guest share: guest_socket.c (who comes, and what is said), guest_learner.c
 * (the table of functions, jobs), guest_work.c (what workers do). */
#ifndef DUNLIN_AGENT_GUEST_GUEST_INTERNAL_H
#define DUNLIN_AGENT_GUEST_GUEST_INTERNAL_H

#include "agent/guest/guest.h"

#include <sys/un.h>

#define GUEST_JOBS 32
#define GUEST_FILE 64 /* of a name among the results, NUL included */

/* Memory that a guest maps, too. */
struct guest_memory {
	int fd; /* owned; -1: none */
	size_t bytes;
	float *at; /* owned mapping */
};
/* Allocated, not only promised, so that no access can fail later, and sealed: neither side can make
 * it smaller. ERR_NOMEM: the machine has no room for it. */
int guest__memory_open(struct guest_memory *m, size_t floats, struct err *e) MUST_CHECK;
void guest__memory_close(struct guest_memory *m);

enum guest_job_kind {
	JOB_SNAPSHOT,
	JOB_APPLY,
	JOB_STATE,
	JOB_TRY,
	JOB_ADOPT,
	JOB_RESTORE,
	JOB_SAVE,
	JOB_EXPORT,
	JOB_EVALUATE,
};
enum guest_stage {
	STAGE_NONE,
	STAGE_BEFORE, /* a worker prepares what is asked for */
	STAGE_ASKED,
	STAGE_AFTER, /* a worker takes what was answered */
};
struct guest_job {
	enum guest_job_kind kind;
	void *to;          /* borrowed from the driver until the callback */
	const float *from; /* the same */
	enum convert_format format;
	struct sketch *sketch;       /* the same; may be NULL */
	struct learner_trial *trial; /* the same */
	float k[EXCHANGE_GROUPS_MAX];
	struct learner_state state;
	bool whole;
	char name[GUEST_FILE];
};

struct guest {
	struct learner base; /* first */
	struct guest_config c;
	struct guest_hello hello;
	struct sockaddr_un address;
	int listener, fd, pidfd; /* owned; -1: none */
	int pid;
	struct guest_memory shared; /* [0, n): what it sends; [n', n' + n): what it adds */
	size_t at_in;               /* n', whole pages: floats */
	char device[80];

	uv_poll_t poll, listen_poll, pid_poll; /* of those that are open */
	uv_async_t kick;                       /* there is something to do on a later turn */
	uv_timer_t timer;
	uv_work_t work;
	int handles; /* not yet closed */
	bool begun, stopping, closing, gone, stalled, writing;

	/* Jobs, the first of which is under way. */
	struct guest_job job[GUEST_JOBS];
	int n_jobs;
	enum guest_stage stage;
	bool working;
	uint32_t serial;
	struct guest_answer answer;
	struct guest_memory passed; /* with the request under way */
	struct err outcome;         /* of its worker */

	/* What the guest is to be told; the newest counts. */
	bool tell_train, tell_clock, tell_over, tell_request, tell_notice, trains, over, over_told;
	bool warned; /* of parameters that are no numbers */
	char notice[GUEST_WORDS_MAX + 1];
	uint64_t others, agents;
	struct guest_step last;
	uint64_t heard_ms;
	double slowest; /* of the last steps, seconds: falls slowly */
};

/* guest_socket.c: a packet to the guest, with a descriptor if fd is not -1. False: it has no room,
 * try later; a guest that is gone takes everything. */
bool guest__send(struct guest *g, const uint8_t *bytes, size_t len, int fd);
int guest__accept(struct guest *g, int *pid);
void guest__turn_away(int fd, const char *words);

/* guest_learner.c. */
extern const struct learner_ops guest__ops;

/* guest_work.c, on a worker. */
void guest__work_before(struct guest *g, struct guest_job *j);
void guest__work_after(struct guest *g, struct guest_job *j);

#endif
