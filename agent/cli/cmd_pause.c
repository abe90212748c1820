/* SPDX-License-Identifier: MIT */
/* dunlin pause, dunlin resume, dunlin checkpoint: what an agent is asked to do besides leaving.
 *
 * Pause and resume are done with the agent's consent. A checkpoint is not: it is written between
 * two steps and takes its time, so the command looks at the status until there is a newer one than
 * the agent knew of when it was asked. A disk that does not take it, or a peer's state that is on
 * its way, is not told here: the wait ends after a minute, with what the agent says of itself. */
#include "agent/cli/ask.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CHECKPOINT_WAIT_S 60
#define CHECKPOINT_LOOK_MS 100

static void show_paused(const cJSON *o)
{
	printf("paused after step %.0f; `dunlin resume` continues\n", asked_number(o, "step"));
}

static void show_resumed(const cJSON *o)
{
	printf("training continues at step %.0f\n", asked_number(o, "step"));
}

int cmd_pause(int argc, char **argv)
{
	return ask_and_show(CMD_PAUSE, argc, argv, show_paused);
}

int cmd_resume(int argc, char **argv)
{
	return ask_and_show(CMD_RESUME, argc, argv, show_resumed);
}

/* ---- checkpoint */

static void show_checkpoint(const struct asked *a, const cJSON *training)
{
	const cJSON *saved = asked_at(training, "checkpoint");
	if (a->json) {
		char *text = cJSON_PrintUnformatted(saved);
		printf("%s\n", text ? text : "null");
		free(text);
		return;
	}
	printf("checkpoint of step %.0f in ", asked_number(saved, "step"));
	asked_words(stdout, training, "out");
	putchar('\n');
}

/* Until a status tells of a newer one. */
static int await_checkpoint(struct asked *a, double last, double count)
{
	struct timespec from, now;
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (;;) {
		int status = ask(a, "{\"cmd\":\"status\"}");
		if (status != EXIT_OK)
			return status;
		const cJSON *training = asked_at(a->reply, "training");
		const cJSON *saved = asked_at(training, "checkpoint");
		if (asked_number(saved, "step") > last || asked_number(saved, "count") > count) {
			show_checkpoint(a, training);
			return EXIT_OK;
		}
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec - from.tv_sec >= CHECKPOINT_WAIT_S)
			break;
		poll(NULL, 0, CHECKPOINT_LOOK_MS);
	}
	fprintf(stderr, "dunlin: no checkpoint in %d s; the agent reports: ", CHECKPOINT_WAIT_S);
	asked_words(stderr, asked_at(a->reply, "health"), "words");
	fputc('\n', stderr);
	return EXIT_FAILED;
}

int cmd_checkpoint(int argc, char **argv)
{
	struct asked a;
	int status;
	if (!ask_open(&a, CMD_CHECKPOINT, argc, argv, &status))
		return status;
	status = ask(&a, "{\"cmd\":\"checkpoint\"}");
	if (status == EXIT_OK)
		status = await_checkpoint(
		        &a, asked_number(a.reply, "last"), asked_number(a.reply, "count"));
	ask_close(&a);
	return status;
}
