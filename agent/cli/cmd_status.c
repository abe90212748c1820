/* SPDX-License-Identifier: MIT */
/* dunlin status, dunlin peers, dunlin leave: ask the agent of that name, and show its answer: as it
 * came with --json, for people otherwise. leave waits until the agent's process has ended, so that
 * what follows it in a script finds the name free: state, socket, results and port. */
#include "agent/cli/ask.h"

#include <stdio.h>
#include <string.h>

#define LEAVE_EXTRA_S 10 /* beyond the time that the agent itself takes at most */

/* ---- status, for people */

static void show_addrs(const cJSON *o)
{
	const char *before = "";
	const cJSON *a;
	cJSON_ArrayForEach(a, asked_at(o, "addrs"))
	{
		char text[JSON_SHOWN];
		printf("%s%s", before, cJSON_IsString(a) ? json_shown(a->valuestring, text) : "?");
		before = ", ";
	}
}

static void show_agent(const cJSON *o)
{
	char a[JSON_SHOWN], b[JSON_SHOWN], c[ASKED_SHORT];
	const cJSON *id = asked_at(o, "id");
	printf("%s, dunlin %s, up %s, generation %.0f\n", asked_text(o, "name", a),
	        asked_text(o, "version", b), asked_duration(asked_number(o, "uptime_s"), c),
	        asked_number(o, "generation"));
	/* Longer than what json_shown keeps, and of use only as a whole. */
	if (cJSON_IsString(id) && strspn(id->valuestring, "0123456789abcdef") == 64)
		printf("id       %.64s\n", id->valuestring);
	printf("address  listens on %s, peers are told ", asked_text(o, "listen", a));
	show_addrs(o);
	printf("%s\n", asked_truth(o, "dialable") ? "" : ", not dialable");
	printf("health   ");
	asked_words(stdout, asked_at(o, "health"), "words");
	printf(" (score %.0f: 0 is good, 7 is slow)\n",
	        asked_number(asked_at(o, "health"), "score"));
}

/* ", perplexity 12.3", of samples that are tokens. */
static const char *show_perplexity(const cJSON *v, char out[64])
{
	char number[ASKED_SHORT];
	out[0] = 0;
	if (asked_has(v, "perplexity"))
		snprintf(out, 64, ", perplexity %s", asked_real(v, "perplexity", number));
	return out;
}

static void show_accuracy(const char *label, const cJSON *v)
{
	char perplexity[64];
	printf("%-8s %.2f %%, %.0f of %.0f test %s%s%s, at step %.0f\n", label,
	        100 * asked_number(v, "value"), asked_number(v, "correct"),
	        asked_number(v, "count"), asked_has(v, "perplexity") ? "tokens" : "images",
	        show_perplexity(v, perplexity), asked_truth(v, "whole") ? "" : " (a part of them)",
	        asked_number(v, "step"));
}

static void show_validation(const cJSON *v)
{
	char a[ASKED_SHORT], b[ASKED_SHORT], c[64];
	printf("held out loss %s%s, %.2f %% of %.0f %s, at step %.0f; best %s at step %.0f\n",
	        asked_real(v, "loss", a), show_perplexity(v, c), 100 * asked_number(v, "accuracy"),
	        asked_number(v, "count"), asked_has(v, "perplexity") ? "tokens" : "images",
	        asked_number(v, "step"), asked_real(v, "best_loss", b),
	        asked_number(v, "best_step"));
}

static void show_training(const cJSON *t)
{
	const cJSON *final = asked_at(t, "final"), *join = asked_at(t, "join");
	char a[JSON_SHOWN], b[JSON_SHOWN], c[ASKED_SHORT], d[ASKED_SHORT], e[ASKED_SHORT];
	double clock = asked_number(t, "clock"), total = asked_number(t, "total");
	printf("training %s, step %.0f, loss %s, lr %s, %s samples/s; %s on ",
	        asked_text(t, "phase", a), asked_number(t, "step"), asked_real(t, "loss", c),
	        asked_real(t, "lr", d), asked_real(t, "samples_per_s", e),
	        asked_text(t, "model", b));
	asked_words(stdout, t, "device");
	putchar('\n');
	const char *run = asked_text(t, "run", a);
	printf("run      %s%s%.1f %% done: %.0f of %.0f samples, %.0f of them ours, epoch %s\n",
	        run, run[0] ? ", " : "", total > 0 ? 100 * clock / total : 0, clock, total,
	        asked_number(t, "samples"), asked_real(t, "epoch", c));
	if (asked_has(t, "tokens"))
		printf("tokens   %.0f are ours\n", asked_number(t, "tokens"));
	if (asked_has(t, "batch"))
		printf("batch    %.0f samples a step; a gradient is half noise at %s\n",
		        asked_number(t, "batch"), asked_real(t, "noise", c));
	if (asked_has(t, "join"))
		printf("joining  %.0f of %.0f parameters from %.12s\n", asked_number(join, "words"),
		        asked_number(join, "total"), asked_text(join, "donor", a));
	if (asked_has(final, "merged"))
		show_accuracy("merged", asked_at(final, "merged"));
	else if (asked_has(t, "accuracy"))
		show_accuracy("accuracy", asked_at(t, "accuracy"));
	if (asked_has(t, "validation"))
		show_validation(asked_at(t, "validation"));
}

/* Why parameters travel in that format: see gossip/policy/format.h. */
static void show_wire(const cJSON *w)
{
	static const struct {
		const char *why, *words;
	} all[] = {{"stated", "as gossip.wire says"},
	        {"packs", "gossip.wire is auto, and this agent can pack it"},
	        {"unpacked", "this agent cannot pack mod8 and mod4: a GPU, or batch norm"},
	        {"one-way", "gossip.exchange moves one of the two only"},
	        {"first", "until a first exchange has found the scales"},
	        {"merge", "a merge round"}};
	char a[JSON_SHOWN], b[JSON_SHOWN];
	const char *why = asked_text(w, "why", a);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		why = strcmp(why, all[i].why) == 0 ? all[i].words : why;
	printf("wire     %s: %s\n", asked_text(w, "format", b), why);
}

static void show_gossip(const cJSON *o)
{
	const cJSON *g = asked_at(o, "gate"), *d = asked_at(o, "distance");
	const cJSON *u = asked_at(o, "guard");
	const cJSON *x = asked_at(o, "exchanges"), *p = asked_at(o, "partners");
	char a[JSON_SHOWN], b[ASKED_SHORT], c[ASKED_SHORT], e[ASKED_SHORT], f[ASKED_SHORT];
	printf("gate     %s, Δ %s / δ %s, LSSR %s; %.0f local steps, %.0f communicating%s\n",
	        asked_text(g, "mode", a), asked_real(g, "change", b), asked_real(g, "delta", c),
	        asked_real(g, "lssr", e), asked_number(g, "local"),
	        asked_number(g, "communicating"), asked_truth(g, "owed") ? ", one owed" : "");
	printf("guard    %s; consensus distance %s of %s, an exchange every %s steps\n",
	        asked_truth(u, "on") ? "on" : "off", asked_real(u, "consensus", b),
	        asked_real(u, "target", c), asked_real(u, "interval", e));
	printf("distance %s to the last partner, rms %s, radius %s; %s to consensus (%.0f "
	       "sketches)\n",
	        asked_real(d, "last", b), asked_real(d, "rms", c), asked_real(d, "radius", e),
	        asked_real(d, "consensus", f), asked_number(d, "sketches"));
	printf("exchange %s; %.0f begun, %.0f taken, %.0f one-sided, %.0f clipped; %s sent, %s "
	       "received\n",
	        asked_text(x, "state", a), asked_number(x, "begun"), asked_number(x, "taken"),
	        asked_number(x, "one_sided"), asked_number(x, "clipped"),
	        asked_bytes(asked_number(x, "bytes_sent"), b),
	        asked_bytes(asked_number(x, "bytes_received"), c));
	show_wire(asked_at(x, "wire"));
	if (asked_has(x, "delay"))
		printf("delay    %s own steps from snapshot to merge, %s from the decision "
		       "(medians)\n",
		        asked_real(x, "delay", b), asked_real(x, "delay_decided", c));
	if (strcmp(asked_text(x, "outer", a), "none") != 0)
		printf("outer    %s around the exchanges\n", a);
	printf("partners %.0f of our run, %.0f with other settings or of other runs, %.0f in "
	       "quarantine\n",
	        asked_number(p, "candidates"), asked_number(p, "unlike"),
	        asked_number(p, "in_quarantine"));
	if (asked_number(p, "capped") > 0)
		printf("capped   %.0f claim more samples than count: if they are that fast, raise "
		       "gossip.rate_cap\n",
		        asked_number(p, "capped"));
}

static void show_status(const cJSON *o)
{
	const cJSON *peers = asked_at(o, "peers"), *net = asked_at(o, "net");
	const cJSON *loop = asked_at(o, "loop"), *gossip = asked_at(o, "membership");
	char c[ASKED_SHORT], d[ASKED_SHORT];
	show_agent(o);
	if (asked_has(o, "training")) {
		show_training(asked_at(o, "training"));
		show_gossip(o);
	}
	printf("peers    %.0f alive, %.0f suspect, %.0f dead, %.0f left; %.0f probes, %.0f "
	       "failed\n",
	        asked_number(peers, "alive"), asked_number(peers, "suspect"),
	        asked_number(peers, "dead"), asked_number(peers, "left"),
	        asked_number(gossip, "probes"), asked_number(gossip, "probes_failed"));
	if (asked_number(net, "news_forbidden") > 0)
		printf("lists    leave out peers that others count: their clocks may differ from "
		       "ours\n");
	printf("network  %.0f connections, %s sent, %s received, %.0f strangers refused\n",
	        asked_number(net, "connections"), asked_bytes(asked_number(net, "bytes_sent"), c),
	        asked_bytes(asked_number(net, "bytes_received"), d),
	        asked_number(net, "strangers_refused"));
	printf("loop     late by %.1f ms (p99), %.1f ms at most; %.0f slow callbacks; %s "
	       "resident\n",
	        asked_number(loop, "lag_us_p99") / 1000, asked_number(loop, "lag_us_max") / 1000,
	        asked_number(loop, "slow_callbacks"),
	        asked_bytes(1024 * asked_number(o, "rss_kb"), c));
}

/* ---- peers */

static const char *link_of(const cJSON *peer)
{
	if (asked_truth(peer, "connected"))
		return "connected";
	if (asked_truth(peer, "unreachable"))
		return "unreachable";
	return asked_truth(peer, "dialable") ? "datagrams" : "not dialable";
}

static void show_peers(const cJSON *o)
{
	const cJSON *list = asked_at(o, "peers"), *peer;
	if (cJSON_GetArraySize(list) == 0) {
		printf("no peers yet\n");
		return;
	}
	printf("%-12s  %-26s  %-8s  %-8s  %-12s  %s\n", "ID", "ADDRESS", "STATE", "FOR", "LINK",
	        "SAMPLES");
	cJSON_ArrayForEach(peer, list)
	{
		char id[JSON_SHOWN], addr[JSON_SHOWN], state[JSON_SHOWN], since[ASKED_SHORT];
		char where[JSON_SHOWN + 16];
		int addrs = cJSON_GetArraySize(asked_at(peer, "addrs"));
		snprintf(where, sizeof where, addrs > 1 ? "%s +%d" : "%s",
		        asked_text(peer, "addr", addr), addrs - 1);
		printf("%-12.12s  %-26s  %-8s  %-8s  %-12s  %.0f\n", asked_text(peer, "id", id),
		        where, asked_text(peer, "state", state),
		        asked_duration(asked_number(peer, "since_s"), since), link_of(peer),
		        asked_number(peer, "samples"));
	}
}

/* ---- leave */

static void show_left(const cJSON *o)
{
	char name[JSON_SHOWN];
	printf("%s has left its flock\n", asked_text(o, "name", name));
}

/* ---- the commands */

int cmd_status(int argc, char **argv)
{
	return ask_and_show(CMD_STATUS, argc, argv, show_status);
}

int cmd_peers(int argc, char **argv)
{
	return ask_and_show(CMD_PEERS, argc, argv, show_peers);
}

/* Until it has ended, or much longer than it should take. */
static int await_end(struct asked *a)
{
	struct err e;
	/* Of an agent that does not say it, as far as our own settings know. */
	double own_s = asked_has(a->reply, "leave_s") ? asked_number(a->reply, "leave_s")
	                                              : a->config.agent.leave_s;
	double wait_s = (own_s > 0 && own_s < 1e6 ? own_s : 0) + LEAVE_EXTRA_S;
	if (client_wait_end(&a->client, (int64_t)(1000 * wait_s), &e) == 0)
		return EXIT_OK;
	return cli_fail(EXIT_FAILED,
	        "process %ld was asked to leave, but has not ended in %g s: its log says what it "
	        "is "
	        "doing",
	        (long)a->client.pid, wait_s);
}

int cmd_leave(int argc, char **argv)
{
	struct asked a;
	int status;
	if (!ask_open(&a, CMD_LEAVE, argc, argv, &status))
		return status;
	status = ask(&a, "{\"cmd\":\"leave\"}");
	if (status == EXIT_OK)
		status = await_end(&a);
	if (status == EXIT_OK && a.json)
		printf("%s\n", a.answer.data);
	else if (status == EXIT_OK)
		show_left(a.reply);
	ask_close(&a);
	return status;
}
