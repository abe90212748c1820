/* SPDX-License-Identifier: MIT */
/* A guest behind the learner's table, played by this test, which says what a script says, and what
 * none would: shapes of messages, memory, jobs in their order, and every way to go away. */
#include "agent/guest/guest_internal.h"
#include "tests/support.h"

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define N 10 /* parameters: 2 x 3, 3, and a statistic of 1 */

/* ---- messages, as a script writes them */

struct packet {
	uint8_t b[512];
	size_t n;
};

static void put(struct packet *p, uint64_t x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p->b[p->n++] = (uint8_t)(x >> 8 * i);
}

static void put_real(struct packet *p, double x)
{
	uint64_t bits;
	memcpy(&bits, &x, sizeof bits);
	put(p, bits, 8);
}

static void put_text(struct packet *p, size_t length_bytes, const char *text)
{
	put(p, strlen(text), length_bytes);
	memcpy(p->b + p->n, text, strlen(text));
	p->n += strlen(text);
}

static struct packet hello(uint32_t n_tensors, uint64_t total, const char *run)
{
	struct packet p = {.n = 0};
	put(&p, GUEST_HELLO, 1);
	put(&p, GUEST_MAGIC, 4);
	put(&p, GUEST_VERSION, 2);
	put(&p, 1, 1);
	put(&p, 3, 1);
	put(&p, 0, 1);
	put(&p, n_tensors, 4);
	put(&p, total, 8);
	put(&p, 32, 8);
	for (int i = 0; i < 3; i++)
		put(&p, 0, 8);
	put_real(&p, 0.01);
	put_real(&p, 0.9);
	put_text(&p, 1, run);
	put_text(&p, 1, "AdamW");
	return p;
}

static void put_tensor(
        struct packet *p, enum guest_kind kind, const char *name, int rank, const uint64_t *dim)
{
	put(p, kind, 1);
	put(p, (uint64_t)rank, 1);
	for (int i = 0; i < rank; i++)
		put(p, dim[i], 8);
	put_text(p, 2, name);
}

static struct packet tensors(void)
{
	struct packet p = {.n = 0};
	put(&p, GUEST_TENSORS, 1);
	put(&p, 3, 2);
	put_tensor(&p, GUEST_WEIGHT, "0.weight", 2, (const uint64_t[]){2, 3});
	put_tensor(&p, GUEST_PLAIN, "0.bias", 1, (const uint64_t[]){3});
	put_tensor(&p, GUEST_STATISTIC, "1.mean", 0, NULL);
	return p;
}

static struct packet step(uint64_t number, uint64_t samples)
{
	struct packet p = {.n = 0};
	put(&p, GUEST_STEP, 1);
	put(&p, number, 8);
	put(&p, samples, 8);
	for (int i = 0; i < 5; i++)
		put_real(&p, 0.5);
	put(&p, 1, 1);
	return p;
}

static struct packet answer(uint32_t serial, bool failed)
{
	struct packet p = {.n = 0};
	put(&p, GUEST_ANSWER, 1);
	put(&p, serial, 4);
	put(&p, failed, 1);
	put(&p, 7, 8);
	put_real(&p, 0.25);
	put_real(&p, 0.5);
	put(&p, 9, 8);
	put(&p, 10, 8);
	put_text(&p, 1, failed ? "no" : "");
	return p;
}

/* ---- parsing */

static int read_all(struct guest_hello *h, const struct packet *a, const struct packet *b,
        bool *whole, struct err *e)
{
	int rc = guest_hello_read(h, a->b, a->n, whole, e);
	return rc || !b ? rc : guest_hello_read(h, b->b, b->n, whole, e);
}

static void a_hello_is_read(void **state)
{
	struct packet a = hello(3, 1000, "r"), b = tensors();
	struct guest_hello h = {0};
	struct err e;
	struct buf text;
	bool whole;
	(void)state;
	assert_int_equal(guest_hello_read(&h, a.b, a.n, &whole, &e), 0);
	assert_false(whole);
	assert_int_equal(guest_hello_read(&h, b.b, b.n, &whole, &e), 0);
	assert_true(whole);
	assert_true(h.n == 3 && h.n_decay == 6 && h.n_train == 9 && h.n_total == N);
	assert_true(h.total == 1000 && h.step_samples == 32 && h.vectors == 3);
	assert_string_equal(h.run, "r");
	buf_init(&text, 1000);
	assert_int_equal(guest_hello_print(&h, &text), 0);
	assert_string_equal(
	        text.data, "0.weight f32 [2,3]\n0.bias f32 [3]\n1.mean statistic f32 []\n");
	buf_close(&text);
	guest_hello_close(&h);
}

static void no_packet_that_is_cut_is_taken(void **state)
{
	struct packet whole[] = {hello(3, 1000, "r"), tensors(), step(1, 32), answer(1, true)};
	(void)state;
	for (int k = 0; k < 4; k++)
		for (size_t n = 0; n < whole[k].n; n++) {
			/* Exactly so long, for the sanitizer. */
			uint8_t *cut = malloc(n + 1);
			struct guest_hello h = {0};
			struct guest_message m;
			struct err e;
			bool done;
			memcpy(cut, whole[k].b, n);
			cut = realloc(cut, n ? n : 1);
			if (k == 1)
				assert_int_equal(
				        guest_hello_read(&h, whole[0].b, whole[0].n, &done, &e), 0);
			if (k < 2)
				assert_int_not_equal(guest_hello_read(&h, cut, n, &done, &e), 0);
			else
				assert_int_not_equal(guest_read(&m, cut, n, &e), 0);
			guest_hello_close(&h);
			free(cut);
		}
}

static void refused(struct packet a, const struct packet *b, const char *why)
{
	struct guest_hello h = {0};
	struct err e = {0};
	bool whole;
	assert_int_not_equal(read_all(&h, &a, b, &whole, &e), 0);
	if (!strstr(e.msg, why))
		fail_msg("\"%s\", not \"%s\"", e.msg, why);
	guest_hello_close(&h);
}

static struct packet one(enum guest_kind kind, const char *name, int rank, uint64_t d)
{
	const uint64_t dim[9] = {d, d, d, d, d, d, d, d, d};
	struct packet p = {.n = 0};
	put(&p, GUEST_TENSORS, 1);
	put(&p, 1, 2);
	put_tensor(&p, kind, name, rank, dim);
	return p;
}

static void what_cannot_be_trained_is_refused(void **state)
{
	struct packet p = hello(1, 1000, "");
	struct packet t = one(GUEST_WEIGHT, "w", 2, 1ull << 33);
	(void)state;
	refused(p, &t, "too large");
	t = one(GUEST_WEIGHT, "w", 8, 1ull << 32); /* a product over 64 bits */
	refused(p, &t, "too large");
	t = one(GUEST_WEIGHT, "w", 9, 1);
	refused(p, &t, "at most 8");
	t = one(GUEST_WEIGHT, "w", 1, 3);
	refused(p, &t, "canonical order");
	t = one(GUEST_WEIGHT, "w", 2, 0);
	refused(p, &t, "empty");
	t = one(GUEST_STATISTIC, "w", 2, 1);
	refused(p, &t, "no parameter to train");
	t = one(GUEST_WEIGHT, "w\n", 2, 1);
	refused(p, &t, "ASCII");
	refused(hello(0, 1000, ""), NULL, "tensors");
	refused(hello(LIMIT_TENSORS + 1, 1000, ""), NULL, "tensors");
	refused(hello(1, 0, ""), NULL, "budget");
	p.b[5] = 2;
	refused(p, NULL, "version");
	p.b[1] = 0;
	refused(p, NULL, "no HELLO");
	p = hello(2, 1000, "");
	t = (struct packet){.n = 0};
	put(&t, GUEST_TENSORS, 1);
	put(&t, 2, 2);
	put_tensor(&t, GUEST_WEIGHT, "w", 2, (const uint64_t[]){1, 1});
	put_tensor(&t, GUEST_WEIGHT, "w", 2, (const uint64_t[]){1, 1});
	refused(p, &t, "named w");
}

/* ---- a guest that runs */

struct bed {
	uv_loop_t loop;
	struct learner *l;
	struct run_dir dir;
	char folder[200], path[240];
	int fd, memory; /* of the script's side */
	float *shared;
	size_t at_in;
	float x[N];
	int gone, stalls, stopped, steps, snapshots, applied, states, adopted, refusals, done;
	int exported;
	struct learner_step step;
	struct err err;
	pthread_t script;
};

static void *attach(void *arg)
{
	struct bed *b = arg;
	struct packet p = hello(3, 1000, ""), t = tensors();
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	strcpy(a.sun_path, b->path);
	for (;;) { /* until it listens */
		b->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		if (connect(b->fd, (struct sockaddr *)&a, sizeof a) == 0)
			break;
		close(b->fd);
		poll(NULL, 0, 1);
	}
	(void)!send(b->fd, p.b, p.n, 0);
	(void)!send(b->fd, t.b, t.n, 0);
	return NULL;
}

static void on_gone(void *arg)
{
	((struct bed *)arg)->gone++;
}
static void on_stopped(void *arg)
{
	((struct bed *)arg)->stopped++;
}
static void on_snapshot(void *arg, uint64_t at)
{
	((struct bed *)arg)->snapshots += at > 0;
}
static void on_applied(void *arg, uint64_t at)
{
	((struct bed *)arg)->applied += at > 0;
}
static void on_state(void *arg, const struct learner_state *s)
{
	((struct bed *)arg)->states += s->optim_steps == 7 && s->vectors == 3;
}
static void on_done(void *arg, uint64_t clock)
{
	((struct bed *)arg)->done += clock >= 1000;
}
static void on_steps(void *arg, const struct learner_step *s, int n)
{
	struct bed *b = arg;
	b->step = s[n - 1];
	b->steps += n;
}
static void on_adopted(void *arg, const struct err *e)
{
	((struct bed *)arg)->adopted++;
	((struct bed *)arg)->err = *e;
}
static void on_refused(void *arg, enum learner_refusal what, const struct err *e)
{
	(void)what;
	((struct bed *)arg)->refusals++;
	((struct bed *)arg)->err = *e;
}
static void on_exported(void *arg, const char *path, const struct err *e)
{
	(void)path;
	((struct bed *)arg)->exported++;
	((struct bed *)arg)->err = *e;
}
static void on_stalled(void *arg, bool stalled)
{
	((struct bed *)arg)->stalls += stalled ? 1 : 10;
}

#define AWAIT(b, so)  \
	while (!(so)) \
	assert_true(uv_run(&(b)->loop, UV_RUN_ONCE) != 0 || (so))

/* The next message to the script, and its descriptor. */
static int told(struct bed *b, uint8_t m[512], int *fd)
{
	struct iovec iov = {.iov_base = m, .iov_len = 512};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof *fd)];
	struct msghdr h = {.msg_iov = &iov,
	        .msg_iovlen = 1,
	        .msg_control = control,
	        .msg_controllen = sizeof control};
	ssize_t n;
	while ((n = recvmsg(b->fd, &h, MSG_DONTWAIT)) < 0)
		uv_run(&b->loop, UV_RUN_NOWAIT);
	struct cmsghdr *c = CMSG_FIRSTHDR(&h);
	*fd = -1;
	if (n > 0 && c)
		memcpy(fd, CMSG_DATA(c), sizeof *fd);
	return n > 0 ? m[0] : 0;
}

static int told_kind(struct bed *b, int kind, uint8_t m[512])
{
	int fd, k;
	while ((k = told(b, m, &fd)) != kind && k != 0)
		assert_int_equal(fd, -1);
	assert_int_equal(k, kind);
	return fd;
}

static uint32_t serial_of(const uint8_t *m)
{
	uint32_t s;
	memcpy(&s, m + 2, sizeof s);
	return s;
}

static void say(struct bed *b, struct packet p)
{
	assert_int_equal(send(b->fd, p.b, p.n, MSG_NOSIGNAL), (ssize_t)p.n);
}

static void bed_open(struct bed *b, void **state)
{
	static int beds;
	struct err e = {0};
	uint8_t m[512];
	memset(b, 0, sizeof *b);
	alarm(120);
	snprintf(b->folder, sizeof b->folder, "%s/bed%d", (const char *)*state, beds++);
	snprintf(b->path, sizeof b->path, "%s/a.guest", b->folder);
	assert_int_equal(uv_loop_init(&b->loop), 0);
	assert_int_equal(run_dir_open(&b->dir, b->folder, &e), 0);
	assert_int_equal(pthread_create(&b->script, NULL, attach, b), 0);
	const struct guest_config c = {
	        .loop = &b->loop, .path = b->path, .run = "", .dir = &b->dir, .stall_ms = 300};
	if (guest_wait(&b->l, &c, &e) != 0)
		fail_msg("%s", e.msg);
	pthread_join(b->script, NULL);
	guest_callbacks(b->l, b, on_gone, on_stalled);
	b->l->callbacks = (struct learner_callbacks){.arg = b,
	        .steps_cb = on_steps,
	        .snapshot_cb = on_snapshot,
	        .applied_cb = on_applied,
	        .state_cb = on_state,
	        .adopted_cb = on_adopted,
	        .refused_cb = on_refused,
	        .exported_cb = on_exported,
	        .done_cb = on_done,
	        .stopped_cb = on_stopped};
	assert_int_equal(told(b, m, &b->memory), GUEST_WELCOME);
	assert_true(b->memory >= 0);
	uint64_t bytes, at;
	memcpy(&bytes, m + 1, 8);
	memcpy(&at, m + 17, 8);
	b->at_in = at / sizeof(float);
	b->shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, b->memory, 0);
	assert_true(b->shared != MAP_FAILED);
	assert_int_equal(ftruncate(b->memory, 0), -1); /* sealed */
	learner_begin(b->l);
	for (int i = 0; i < N; i++)
		b->x[i] = (float)(i + 1);
}

static void bed_close(struct bed *b)
{
	learner_stop(b->l);
	AWAIT(b, b->stopped);
	learner_free(b->l);
	assert_int_equal(access(b->path, F_OK), -1);
	run_dir_close(&b->dir);
	close(b->fd);
	close(b->memory);
	while (uv_loop_close(&b->loop) != 0)
		uv_run(&b->loop, UV_RUN_ONCE);
	alarm(0);
}

static void it_trains_and_exchanges(void **state)
{
	struct bed b;
	uint8_t m[512];
	float snapshot[N], difference[N], donated[3 * N], fetched[3 * N];
	const float k[2] = {0.5f, 0.25f};
	int fd;
	bed_open(&b, state);
	assert_int_equal(b.l->info.n_total, N);
	assert_int_equal(b.l->info.groups.n, 2);
	learner_train(b.l);
	told_kind(&b, GUEST_TRAIN, m);
	say(&b, step(1, 32));
	AWAIT(&b, b.steps == 1);
	assert_true(b.step.r.samples == 32 && b.step.r.loss == 0.5 && !b.step.no_loss);

	assert_true(learner_snapshot(b.l, snapshot, CONVERT_FP32, NULL));
	told_kind(&b, GUEST_REQUEST, m);
	assert_int_equal(m[1], GUEST_SNAPSHOT);
	memcpy(b.shared, b.x, sizeof b.x);
	say(&b, answer(serial_of(m), false));
	AWAIT(&b, b.snapshots == 1);
	assert_memory_equal(snapshot, b.x, sizeof b.x);

	for (int i = 0; i < N; i++)
		difference[i] = 0.1f * (float)(i + 1);
	assert_true(learner_apply(b.l, difference, k, 2));
	told_kind(&b, GUEST_REQUEST, m);
	assert_int_equal(m[1], GUEST_APPLY);
	for (int i = 0; i < N; i++) /* a weight by its group's, a statistic by the smallest */
		assert_true(
		        b.shared[b.at_in + (size_t)i] == (i < 6 ? 0.5f : 0.25f) * difference[i]);
	say(&b, answer(serial_of(m), false));
	AWAIT(&b, b.applied == 1);

	assert_true(learner_take_state(b.l, donated));
	fd = told_kind(&b, GUEST_REQUEST, m);
	assert_true(m[1] == GUEST_STATE && fd >= 0);
	float *passed = mmap(NULL, sizeof donated, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	for (int i = 0; i < 3 * N; i++)
		passed[i] = (float)i;
	say(&b, answer(serial_of(m), false));
	AWAIT(&b, b.states == 1);
	assert_true(donated[3 * N - 1] == (float)(3 * N - 1));
	munmap(passed, sizeof donated);
	close(fd);

	for (int i = 0; i < 3 * N; i++)
		fetched[i] = (float)-i;
	const struct learner_state s = {.optim_steps = 11};
	assert_true(learner_adopt(b.l, fetched, &s));
	fd = told_kind(&b, GUEST_REQUEST, m);
	assert_true(m[1] == GUEST_ADOPT && m[6] == 11 && fd >= 0);
	passed = mmap(NULL, sizeof fetched, PROT_READ, MAP_SHARED, fd, 0);
	assert_memory_equal(passed, fetched, sizeof fetched);
	munmap(passed, sizeof fetched);
	close(fd);
	say(&b, answer(serial_of(m), true));
	AWAIT(&b, b.adopted == 1);
	assert_true(b.err.code != 0 && strstr(b.err.msg, "no"));

	assert_true(learner_export(b.l, "final.safetensors"));
	told_kind(&b, GUEST_REQUEST, m);
	say(&b, answer(serial_of(m), false));
	AWAIT(&b, b.exported == 1);
	assert_int_equal(b.err.code, 0);

	learner_others(b.l, 1000 - 32);
	AWAIT(&b, b.done == 1);
	told_kind(&b, GUEST_OVER, m);
	assert_int_equal(b.gone, 0);
	bed_close(&b);
}

static void numbers_that_are_none_are_refused(void **state)
{
	struct bed b;
	uint8_t m[512];
	uint16_t words[N];
	bed_open(&b, state);
	assert_true(learner_snapshot(b.l, words, CONVERT_BF16, NULL));
	told_kind(&b, GUEST_REQUEST, m);
	b.x[4] = NAN;
	memcpy(b.shared, b.x, sizeof b.x);
	say(&b, answer(serial_of(m), false));
	AWAIT(&b, b.refusals == 1);
	assert_int_equal(b.err.code, ERR_NONFINITE);
	assert_int_equal(b.snapshots, 0);
	told_kind(&b, GUEST_NOTICE, m);
	assert_true(learner_export(b.l, "final.safetensors"));
	told_kind(&b, GUEST_REQUEST, m);
	say(&b, answer(serial_of(m), false));
	AWAIT(&b, b.exported == 1);
	assert_int_equal(b.err.code, ERR_NONFINITE);
	bed_close(&b);
}

/* Each of these ends it: jobs fail, and the loop is told once. */
static void gone_by(void **state, struct packet p, bool asked)
{
	struct bed b;
	uint8_t m[512];
	float snapshot[N];
	bed_open(&b, state);
	if (asked) {
		assert_true(learner_snapshot(b.l, snapshot, CONVERT_FP32, NULL));
		told_kind(&b, GUEST_REQUEST, m);
	}
	if (p.n)
		say(&b, p);
	else
		shutdown(b.fd, SHUT_RDWR);
	AWAIT(&b, b.gone == 1 && b.refusals == asked);
	assert_int_equal(b.snapshots, 0);
	bed_close(&b);
	assert_int_equal(b.gone, 1);
}

static void whatever_no_guest_says_ends_it(void **state)
{
	struct packet none = {.n = 0}, large = {.n = 512}, backwards = step(0, 0);
	gone_by(state, none, false);
	gone_by(state, none, true);
	gone_by(state, large, true);
	gone_by(state, backwards, false);
	gone_by(state, answer(1, false), false); /* nothing was asked */
	gone_by(state, answer(77, false), true); /* not that */
	gone_by(state, hello(3, 1000, ""), false);
}

/* What was agreed on cannot be refused. */
static void an_addition_that_fails_ends_it(void **state)
{
	struct bed b;
	uint8_t m[512];
	const float difference[N] = {1}, k[2] = {1, 1};
	bed_open(&b, state);
	assert_true(learner_apply(b.l, difference, k, 2));
	told_kind(&b, GUEST_REQUEST, m);
	say(&b, answer(serial_of(m), true));
	AWAIT(&b, b.gone == 1);
	assert_int_equal(b.applied, 0);
	bed_close(&b);
}

static void silence_is_a_stall_and_a_word_ends_it(void **state)
{
	struct bed b;
	bed_open(&b, state);
	learner_train(b.l);
	AWAIT(&b, b.stalls == 1);
	say(&b, step(1, 32));
	AWAIT(&b, b.stalls == 11);
	assert_int_equal(b.gone, 0);
	bed_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_hello_is_read),
	        cmocka_unit_test(no_packet_that_is_cut_is_taken),
	        cmocka_unit_test(what_cannot_be_trained_is_refused),
	        cmocka_unit_test_setup_teardown(
	                it_trains_and_exchanges, make_folder, remove_folder),
	        cmocka_unit_test_setup_teardown(
	                numbers_that_are_none_are_refused, make_folder, remove_folder),
	        cmocka_unit_test_setup_teardown(
	                whatever_no_guest_says_ends_it, make_folder, remove_folder),
	        cmocka_unit_test_setup_teardown(
	                an_addition_that_fails_ends_it, make_folder, remove_folder),
	        cmocka_unit_test_setup_teardown(
	                silence_is_a_stall_and_a_word_ends_it, make_folder, remove_folder),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
