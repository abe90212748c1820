/* SPDX-License-Identifier: MIT */
/* What the core says, in words. Peers cause most of it, so every line has a rate. */
#include "agent/base/log.h"
#include "agent/drivers/driver_internal.h"

#include <sodium.h>

const char *short_id(const struct peer_id *id, char out[13])
{
	sodium_bin2hex(out, 13, id->bytes, 6);
	return out;
}

#define U(x) ((unsigned long long)(x))

static void say_exchange(const char *id, const struct flock_say *s)
{
	const struct exchange_result *r = s->result;
	switch (r->outcome) {
	case OUTCOME_BAD:
		log_limited(LOG_WARN,
		        "bad %s: what it sent was not usable (%s, distance %.4g); not used", id,
		        err_text(r->code), r->distance);
		break;
	case OUTCOME_ONE_SIDED:
		log_limited(LOG_WARN,
		        "one-sided %s: lost the peer after COMMIT: our update is %s, the peer's is "
		        "unknown",
		        id, r->moved ? "applied" : "not applied");
		break;
	case OUTCOME_EXCHANGED:
		log_limited(LOG_DEBUG,
		        "exchange %s: exchanged, %llu ms, distance %.4g, factor %.3g (ours %.3g)",
		        id, U(r->took_ms), r->distance, (double)r->factor, (double)s->own_factor);
		break;
	default:
		log_limited(LOG_DEBUG, "exchange %s: %s%s%s%s%s, %llu ms", id,
		        exchange_outcome_text(r->outcome), r->why ? ", " : "",
		        r->why ? exchange_why_text(r->why) : "", r->words[0] ? ": " : "", r->words,
		        U(r->took_ms));
		break;
	}
}

static void say_join(const struct driver *d, const char *id, const struct flock_say *s)
{
	switch (s->code) {
	case SAY_JOINS:
	case SAY_TRAINS_AT_ONCE:
		log_limited(LOG_INFO,
		        "%llu peers of this run; they have trained %llu samples that we do not "
		        "know: %s",
		        U(s->a), U(s->b),
		        s->code == SAY_JOINS ? "joining by a peer's state" : "training at once");
		break;
	case SAY_JOIN_ASKING:
		log_limited(LOG_DEBUG, "join: asking %s, from number %llu", id, U(s->a));
		break;
	case SAY_JOIN_BUSY:
		log_limited(LOG_DEBUG, "join: %s: %s", id, s->words);
		break;
	case SAY_JOIN_UNFIT:
		log_limited(
		        LOG_WARN, "join: %s offers what does not fit: %s", id, err_text(s->error));
		break;
	case SAY_JOIN_BROKEN:
		log_limited(LOG_INFO, "join: broken off after %llu of %llu numbers: %s", U(s->a),
		        U(s->b), err_text(s->error));
		break;
	case SAY_JOIN_OTHER_DONOR:
		log_limited(LOG_INFO, "join: %s",
		        s->flag ? "going on with another donor, whose parameters are "
		                  "near the first's"
		                : "starting over with another donor");
		break;
	case SAY_JOIN_IMPLAUSIBLE:
		log_limited(LOG_WARN,
		        "join: what %s gave is no model of this flock, by %llu sketches", id,
		        U(s->a));
		break;
	case SAY_JOIN_WORSE:
		log_warn("join: what %s gave has a loss of %.4g here, and no more than %.4g is "
		         "believed: it is not taken",
		        id, (double)s->a / 1e6, (double)s->b / 1e6);
		break;
	case SAY_RESTORED:
		log_warn("restored: the state of %s, whose loss was %.4g when it was tried, has "
		         "%.4g now: back to the one before",
		        id, (double)s->b / 1e6, (double)s->a / 1e6);
		break;
	case SAY_JOIN_TAKEN:
		log_limited(LOG_INFO,
		        "join: the state of %s, step %llu, compared with %llu sketches, is taken",
		        id, U(s->a), U(s->b));
		break;
	case SAY_JOIN_NOBODY:
		log_limited(LOG_WARN, "join: no peer has a state to give; training from %s",
		        s->flag ? "our own" : "the initial weights");
		break;
	case SAY_JOINED:
		log_limited(LOG_INFO, "joined in %.2f s, at %.1f %% of the run",
		        (double)s->a / 1000,
		        100.0 * (double)s->b / (double)d->c.core.manifest.total);
		break;
	case SAY_DONATED:
		log_limited(LOG_INFO, "donated %s: it has our state of step %llu", id, U(s->a));
		break;
	case SAY_DONATION_BROKEN:
		log_limited(LOG_INFO, "donation %s: broken off: %s", id, err_text(s->error));
		break;
	default:
		break;
	}
}

void driver__say(const struct driver *d, const struct flock_say *s)
{
	char id[13];
	short_id(&s->peer, id);
	switch (s->code) {
	case SAY_PHASE:
		log_limited(LOG_DEBUG, "phase %s", flock_phase_text((enum flock_phase)s->a));
		break;
	case SAY_ALONE:
		log_limited(
		        LOG_INFO, "alone: no peer of this run yet; training alone, and looking on");
		break;
	case SAY_STALE:
		if (s->flag) {
			log_limited(LOG_INFO,
			        "behind: the others train many times as fast, and exchanges do not "
			        "carry this agent along; taking a peer's state");
			break;
		}
		log_limited(LOG_WARN,
		        "stale: the flock has trained %llu samples without us; taking a peer's "
		        "state",
		        U(s->a));
		break;
	case SAY_NO_RESULT:
		log_limited(LOG_ERROR,
		        "the flock trained %llu of the run's %llu samples while this agent was "
		        "away, and no peer is left to take the result from: no result is written "
		        "here",
		        U(s->a), U(d->c.core.manifest.total));
		log_limited(LOG_ERROR,
		        "take final.safetensors from another agent of this run; `dunlin export` "
		        "makes weights of this agent's own, older model from its last checkpoint");
		break;
	case SAY_RUN_TRAINED:
		log_limited(LOG_INFO, "the run's %llu samples are trained (%llu by this agent)",
		        U(s->a), U(s->b));
		break;
	case SAY_STOPPED_EARLY:
		log_limited(LOG_INFO, "stopped after %lld steps (run.stop_after)",
		        (long long)d->c.config->run.stop_after);
		break;
	case SAY_PAUSED:
		log_limited(LOG_INFO, "paused");
		break;
	case SAY_RESUMED:
		log_limited(LOG_INFO, "resumed");
		break;
	case SAY_EXCHANGE:
		say_exchange(id, s);
		break;
	case SAY_QUARANTINE:
		log_limited(
		        LOG_WARN, "quarantine %s: %s; for %llu s", id, s->words, U(s->a) / 1000);
		break;
	case SAY_APART:
		log_limited(s->flag ? LOG_WARN : LOG_INFO,
		        "apart %s: its parameters are far from ours; its side has %llu agents and "
		        "%llu samples, ours %llu and %llu: %s",
		        id, U(s->a), U(s->b), U(s->c), U(s->d),
		        s->flag ? "this agent adopts theirs" : "it is expected to adopt ours");
		break;
	case SAY_UNLIKE:
		log_limited(LOG_WARN, "unlike %s: %s", id, s->words);
		break;
	case SAY_CAPPED:
		log_warn("capped %s: it claims %llu samples, and %llu of them are counted: more "
		         "than 256 times what others train, than gossip.rate_cap or than its "
		         "invite states; if it is that fast, set gossip.rate_cap to its samples "
		         "per second, or make it an invite with that rate",
		        id, U(s->a), U(s->b));
		break;
	case SAY_ALL_UNLIKE:
		log_limited(LOG_ERROR,
		        "every peer of the run \"%s\" (%llu) has other settings than this agent: "
		        "%s; set them as the others have them, or choose another gossip.run",
		        d->c.config->gossip.run, U(s->a), s->words);
		break;
	case SAY_REFUSED:
		log_limited(
		        LOG_WARN, "the learner does not do request %llu now", U(s->a));
		break;
	default:
		say_join(d, id, s);
		break;
	}
}

/* ---- membership */

void driver__notice(const struct driver *d, const struct gossip_notice *x)
{
	static const char *const name[] = {[NOTICE_JOINED] = "joined",
	        [NOTICE_SUSPECT] = "suspect",
	        [NOTICE_FAILED] = "failed",
	        [NOTICE_LEFT] = "left",
	        [NOTICE_UPDATED] = "updated",
	        [NOTICE_UNREACHABLE] = "unreachable",
	        [NOTICE_REACHABLE] = "reachable",
	        [NOTICE_REFUTED] = "refuted",
	        [NOTICE_SAME_KEY] = "same-key",
	        [NOTICE_GENERATION] = "generation",
	        [NOTICE_REFUSED] = "refused",
	        [NOTICE_TIME_JUMP] = "time-jump"};
	char id[13], addr[64] = "";
	struct member_view v;
	short_id(&x->id, id);
	if (gossip_find(driver_gossip(d), &x->id, &v))
		peer_addr_text(&v.addrs.at[0], addr);
	switch (x->kind) {
	case NOTICE_SAME_KEY:
		log_limited(LOG_ERROR,
		        "same-key %s: this agent's identity was copied, and another process runs "
		        "with it: stop one of the two, remove identity.key from its state "
		        "directory, and start it again",
		        id);
		break;
	case NOTICE_REFUSED:
		log_limited(
		        LOG_WARN, "refused %s: no room for another member, see --members-max", id);
		break;
	case NOTICE_TIME_JUMP:
		log_limited(LOG_WARN,
		        "time-jump: the clock leapt, or this process stood still, for %.1f s",
		        (double)x->value / 1000);
		break;
	case NOTICE_GENERATION:
		log_limited(LOG_WARN,
		        "generation %llu: peers knew a later one of this agent than its state "
		        "directory: that is an old copy, or another process runs with it",
		        U(x->value));
		break;
	default:
		log_limited(LOG_INFO, "%s %s %s", name[x->kind], id, addr);
		break;
	}
}
