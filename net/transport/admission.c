/* SPDX-License-Identifier: MIT */
/* Certificates in a table by id, each of an invite in a second, small table.
 *
 * For an invite that is full, only the highest id that still counts is kept (`last`): an id counts
 * if it is not above that. It is looked for anew when one of the invite's ids begins or ceases to
 * live, which is rare; asked for it is for every piece of news.
 *
 * What can fail is memory at the start; later there is only no room. */
#include "net/transport/admission.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define SPARE_IDS 8 /* of an invite, beside twice its agents */

struct group {
	uint8_t bytes[INVITE_BYTES];
	struct invite invite;
	uint32_t ids, live; /* 0 ids: not used */
	uint64_t added;     /* number of the last certificate of it */
	bool full;
	struct peer_id last; /* full: the highest that counts */
};

struct entry {
	uint8_t bytes[CERTIFICATE_BYTES];
	struct peer_id id;
	bool live;
	uint32_t group; /* NONE: not used */
	uint32_t next;  /* of the same hash */
};

struct admission {
	struct owner owner;
	uint64_t now_s;
	struct peer_id self;
	struct revocations revoked;
	struct revocations_text list;
	uint32_t max, n, hand, mask;
	uint64_t added;
	uint32_t *chain;     /* owned: mask + 1 */
	struct entry *entry; /* owned: max; the first n have been used */
	struct group group[ADMISSION_INVITES];
};

static int compare(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct peer_id));
}

/* ---- the table */

static uint32_t *chain_of(const struct admission *a, const struct peer_id *id)
{
	uint32_t h;
	memcpy(&h, id->bytes, sizeof h); /* a key: as good as random, and of our own invites */
	return &a->chain[h & a->mask];
}

static struct entry *find(const struct admission *a, const struct peer_id *id)
{
	uint32_t i = *chain_of(a, id);
	while (i != NONE && !peer_id_equal(&a->entry[i].id, id))
		i = a->entry[i].next;
	return i == NONE ? NULL : &a->entry[i];
}

static void look_for_last(struct admission *a, uint32_t g)
{
	struct group *x = &a->group[g];
	uint32_t n = 0;
	x->full = false;
	if (x->live < x->invite.agents)
		return;
	struct peer_id *ids = malloc(x->live * sizeof *ids);
	if (!ids)
		return; /* too many may count until the next change */
	for (uint32_t i = 0; i < a->n && n < x->live; i++)
		if (a->entry[i].group == g && a->entry[i].live)
			ids[n++] = a->entry[i].id;
	qsort(ids, n, sizeof *ids, compare);
	x->full = true;
	x->last = ids[x->invite.agents - 1];
	free(ids);
}

static void set_live(struct admission *a, struct entry *x, bool live)
{
	if (x->live == live)
		return;
	x->live = live;
	a->group[x->group].live += live ? 1 : UINT32_MAX;
	look_for_last(a, x->group);
}

static void take_out(struct admission *a, struct entry *x)
{
	uint32_t *at = chain_of(a, &x->id);
	set_live(a, x, false);
	while (&a->entry[*at] != x)
		at = &a->entry[*at].next;
	*at = x->next;
	a->group[x->group].ids--;
	x->group = NONE;
}

/* Room for one more id of group g, by an id that is not alive if need be; NULL: there is none. */
static struct entry *make_room(struct admission *a, uint32_t g)
{
	const struct group *x = &a->group[g];
	bool crowded = x->ids >= 2ull * x->invite.agents + SPARE_IDS;
	if (!crowded && a->n < a->max)
		return &a->entry[a->n++];
	for (uint32_t i = 0; i < a->n; i++) {
		a->hand = (a->hand + 1) % a->n;
		struct entry *e = &a->entry[a->hand];
		bool ours = e->group != NONE && peer_id_equal(&e->id, &a->self);
		if (e->group == NONE && !crowded)
			return e;
		if (e->group == NONE || e->live || ours || (crowded && e->group != g))
			continue;
		take_out(a, e);
		return e;
	}
	return NULL;
}

/* Empties the group that can best be missed: one that has expired, else one of which nobody lives;
 * of these the one longest without a new certificate. NONE: all are of live agents. */
static uint32_t drop_group(struct admission *a)
{
	const struct entry *self = find(a, &a->self);
	uint32_t best = NONE;
	bool best_over = false;
	for (uint32_t i = 0; i < ADMISSION_INVITES; i++) {
		const struct group *x = &a->group[i];
		bool over = a->now_s >= x->invite.expires_s;
		if ((self && self->group == i) || (!over && x->live > 0))
			continue;
		if (best == NONE || (over && !best_over) ||
		        (over == best_over && x->added < a->group[best].added)) {
			best = i;
			best_over = over;
		}
	}
	for (uint32_t i = 0; best != NONE && i < a->n; i++)
		if (a->entry[i].group == best)
			take_out(a, &a->entry[i]);
	return best;
}

/* The group of an invite whose bytes were verified, now or before. */
static int find_group(struct admission *a, const uint8_t *bytes, uint32_t *out)
{
	uint32_t spare = NONE;
	for (uint32_t i = 0; i < ADMISSION_INVITES; i++) {
		if (a->group[i].ids == 0)
			spare = spare == NONE ? i : spare;
		else if (memcmp(a->group[i].bytes, bytes, INVITE_BYTES) == 0) {
			*out = i;
			return 0;
		}
	}
	struct invite v;
	int rc = invite_verify(&v, bytes, INVITE_BYTES, &a->owner, a->now_s, NULL);
	if (rc)
		return rc;
	if (spare == NONE)
		spare = drop_group(a);
	if (spare == NONE)
		return ERR_LIMIT;
	a->group[spare] = (struct group){.invite = v};
	memcpy(a->group[spare].bytes, bytes, INVITE_BYTES);
	*out = spare;
	return 0;
}

static void put_in(struct admission *a, struct entry *x, uint32_t g, const uint8_t *bytes,
        const struct peer_id *id)
{
	uint32_t *at = chain_of(a, id);
	*x = (struct entry){.id = *id, .group = g, .next = *at};
	memcpy(x->bytes, bytes, CERTIFICATE_BYTES);
	*at = (uint32_t)(x - a->entry);
	a->group[g].ids++;
	a->group[g].added = ++a->added;
}

int admission_add(struct admission *a, const uint8_t *bytes, size_t len, bool *worked)
{
	struct certificate c;
	uint32_t g;
	bool live = false, none;
	*(worked ? worked : &none) = false;
	if (certificate_read(&c, bytes, len))
		return ERR_FORMAT;
	struct entry *old = find(a, &c.id);
	if (old && (peer_id_equal(&c.id, &a->self) ||
	                   a->group[old->group].invite.expires_s >= c.invite.expires_s))
		return 0; /* what is ours comes from our own invite, never from a peer */
	if (a->now_s >= c.invite.expires_s)
		return ERR_STALE;
	*(worked ? worked : &none) = true;
	if (certificate_verify_id(bytes))
		return ERR_MISMATCH;
	int rc = find_group(a, bytes, &g);
	if (rc)
		return rc;
	struct entry *x = old;
	if (old) { /* another invite, for longer */
		live = old->live;
		take_out(a, old);
	} else {
		x = make_room(a, g);
	}
	if (!x)
		return ERR_LIMIT;
	put_in(a, x, g, bytes, &c.id);
	set_live(a, x, live);
	return 0;
}

/* ---- who is admitted */

enum admission_verdict admission_look(const struct admission *a, const struct peer_id *id)
{
	const struct entry *x = find(a, id);
	if (!x)
		return ADMISSION_UNKNOWN;
	const struct group *g = &a->group[x->group];
	if (a->now_s >= g->invite.expires_s)
		return ADMISSION_EXPIRED;
	if (a->now_s < a->revoked.expires_s && revocations_have(&a->revoked, &g->invite, id))
		return ADMISSION_REVOKED;
	return g->full && compare(id, &g->last) > 0 ? ADMISSION_FULL : ADMITTED;
}

const char *admission_words(enum admission_verdict v)
{
	switch (v) {
	case ADMITTED:
		break;
	case ADMISSION_UNKNOWN:
		return "no certificate of this flock's owner: ask for an invite (--invite FILE)";
	case ADMISSION_EXPIRED:
		return "the certificate has expired: ask the owner for a new invite";
	case ADMISSION_REVOKED:
		return "the certificate is revoked by the owner";
	case ADMISSION_FULL:
		return "its invite has as many agents as it may: stop one, or ask for another";
	}
	return "admitted";
}

const uint8_t *admission_find(const struct admission *a, const struct peer_id *id)
{
	const struct entry *x = find(a, id);
	return x ? x->bytes : NULL;
}

const uint8_t *admission_own(const struct admission *a)
{
	return admission_find(a, &a->self);
}

const struct invite *admission_invite(const struct admission *a, const struct peer_id *id)
{
	const struct entry *x = find(a, id);
	return x ? &a->group[x->group].invite : NULL;
}

bool admission_label(const struct admission *a, const struct peer_id *id, struct invite *out)
{
	const struct invite *own = admission_invite(a, id);
	bool stated = true;
	if (!own)
		return false;
	*out = *own;
	out->agents = 0;
	for (int i = 0; i < ADMISSION_INVITES; i++) {
		const struct invite *v = &a->group[i].invite;
		if (a->group[i].ids == 0 || memcmp(v->label, own->label, sizeof v->label) != 0 ||
		        (v != own && a->now_s >= v->expires_s))
			continue;
		out->agents += v->agents;
		out->rate = v->rate > out->rate ? v->rate : out->rate;
		stated = stated && v->rate > 0;
	}
	out->rate = stated ? out->rate : 0;
	return true;
}

void admission_live(struct admission *a, const struct peer_id *id, bool live)
{
	struct entry *x = find(a, id);
	if (x && !peer_id_equal(id, &a->self))
		set_live(a, x, live);
}

/* ---- what is revoked */

int admission_revoke(struct admission *a, const uint8_t *bytes, size_t len, struct err *e)
{
	struct revocations r;
	/* Whether it is newer is seen before a signature is verified. */
	if (len >= 8 && revocations_version(bytes, len) <= a->revoked.version)
		return err_set(e, ERR_CANCELLED, "the list of revoked agents is not newer");
	int rc = revocations_verify(&r, bytes, len, &a->owner, a->now_s, e);
	if (rc)
		return rc;
	a->revoked = r;
	a->list.len = len;
	memcpy(a->list.bytes, bytes, len);
	return 0;
}

const struct revocations_text *admission_revoked(const struct admission *a)
{
	return &a->list;
}

uint64_t admission_revoked_version(const struct admission *a)
{
	return a->revoked.version;
}

/* ---- life */

void admission_time(struct admission *a, uint64_t now_s)
{
	a->now_s = now_s;
}

void admission_free(struct admission *a)
{
	if (!a)
		return;
	free(a->chain);
	free(a->entry);
	free(a);
}

static int begin(struct admission *a, const uint8_t *own, struct err *e)
{
	struct certificate c;
	int rc = certificate_verify(&c, own, CERTIFICATE_BYTES, &a->owner, a->now_s, e);
	if (rc)
		return rc;
	a->self = c.id;
	rc = admission_add(a, own, CERTIFICATE_BYTES, NULL);
	if (rc)
		return err_set(e, rc, "%s", err_text(rc));
	set_live(a, find(a, &c.id), true);
	return 0;
}

int admission_new(struct admission **out, const struct owner *owner,
        const uint8_t own[CERTIFICATE_BYTES], uint32_t max, uint64_t now_s, struct err *e)
{
	struct admission *a = calloc(1, sizeof *a);
	uint32_t chains = 64;
	*out = NULL;
	if (a) {
		a->max = max + 1; /* ourselves */
		while (chains < max)
			chains *= 2;
		a->mask = chains - 1;
		a->owner = *owner;
		a->now_s = now_s;
		a->chain = malloc(chains * sizeof *a->chain);
		a->entry = calloc(a->max, sizeof *a->entry);
	}
	if (!a || !a->chain || !a->entry) {
		admission_free(a);
		return err_set(e, ERR_NOMEM, "no memory for certificates");
	}
	memset(a->chain, 0xff, chains * sizeof *a->chain);
	int rc = begin(a, own, e);
	if (rc)
		admission_free(a);
	else
		*out = a;
	return rc;
}
