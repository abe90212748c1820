/* SPDX-License-Identifier: MIT */
/* Every cipher of every provider: published vectors, each other's seals, misuse; and the choice. */
#include "net/crypto/aead.h"
#include "tests/support.h"

#include <sodium.h>

#define BUF 4096

static size_t unhex(uint8_t *out, const char *hex)
{
	size_t n;
	assert_int_equal(sodium_hex2bin(out, BUF, hex, strlen(hex), NULL, &n, NULL), 0);
	return n;
}

/* RFC 8439, appendix A.5 and section 2.8.2; the GCM specification (McGrew, Viega), test cases 13,
 * 14 and 16; the AEGIS draft, appendix A.2, test vectors 1 and 2, with tags of 256 bits. */
static const struct vector {
	enum aead_id id;
	const char *key, *nonce, *ad, *plain, *sealed;
} vectors[] = {
        {AEAD_CHACHA20_POLY1305, "1c9240a5eb55d38af333888604f6b5f0473917c1402b80099dca5cbc207075c0",
                "000000000102030405060708", "f33388860000000000004e91",
                "496e7465726e65742d4472616674732061726520647261667420646f63756d656e74732076616c69"
                "6420666f722061206d6178696d756d206f6620736978206d6f6e74687320616e64206d6179206265"
                "20757064617465642c207265706c616365642c206f72206f62736f6c65746564206279206f746865"
                "7220646f63756d656e747320617420616e792074696d652e20497420697320696e617070726f7072"
                "6961746520746f2075736520496e7465726e65742d447261667473206173207265666572656e6365"
                "206d6174657269616c206f7220746f2063697465207468656d206f74686572207468616e20617320"
                "2fe2809c776f726b20696e2070726f67726573732e2fe2809d",
                "64a0861575861af460f062c79be643bd5e805cfd345cf389f108670ac76c8cb24c6cfc18755d43ee"
                "a09ee94e382d26b0bdb7b73c321b0100d4f03b7f355894cf332f830e710b97ce98c8a84abd0b9481"
                "14ad176e008d33bd60f982b1ff37c8559797a06ef4f0ef61c186324e2b3506383606907b6a7c02b0"
                "f9f6157b53c867e4b9166c767b804d46a59b5216cde7a4e99040c5a40433225ee282a1b0a06c523e"
                "af4534d7f83fa1155b0047718cbc546a0d072b04b3564eea1b422273f548271a0bb2316053fa7699"
                "1955ebd63159434ecebb4e466dae5a1073a6727627097a1049e617d91d361094fa68f0ff77987130"
                "305beaba2eda04df997b714d6c6f2c29a6ad5cb4022b02709beead9d67890cbb22392336fea1851f"
                "38"},
        {AEAD_CHACHA20_POLY1305, "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
                "070000004041424344454647", "50515253c0c1c2c3c4c5c6c7",
                "4c616469657320616e642047656e746c656d656e206f662074686520636c617373206f6620273939"
                "3a204966204920636f756c64206f6666657220796f75206f6e6c79206f6e652074697020666f7220"
                "746865206675747572652c2073756e73637265656e20776f756c642062652069742e",
                "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca96712"
                "82fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58"
                "fab324e4fad675945585808b4831d7bc3ff4def08e4b7a9de576d26586cec64b61161ae10b594f09"
                "e26a7e902ecbd0600691"},
        {AEAD_AES_256_GCM, "0000000000000000000000000000000000000000000000000000000000000000",
                "000000000000000000000000", "", "", "530f8afbc74536b9a963b4f1c4cb738b"},
        {AEAD_AES_256_GCM, "0000000000000000000000000000000000000000000000000000000000000000",
                "000000000000000000000000", "", "00000000000000000000000000000000",
                "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"},
        {AEAD_AES_256_GCM, "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
                "cafebabefacedbaddecaf888", "feedfacedeadbeeffeedfacedeadbeefabaddad2",
                "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
                "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
                "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
                "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f66276fc6ece"
                "0f4e1768cddf8853bb2d551b"},
        {AEAD_AEGIS_128L, "1001000000000000000000000000000000000000000000000000000000000000",
                "10000200000000000000000000000000", "", "00000000000000000000000000000000",
                "c1c0e58bd913006feba00f4b3cc3594e"
                "25835bfbb21632176cf03840687cb968cace4617af1bd0f7d064c639a5c79ee4"},
        {AEAD_AEGIS_128L, "1001000000000000000000000000000000000000000000000000000000000000",
                "10000200000000000000000000000000", "", "",
                "1360dc9db8ae42455f6e5b6a9d488ea4f2184c4e12120249335c4ee84bafe25d"},
};

static void test_vectors(void **state)
{
	(void)state;
	int tried[AEAD_IDS] = {0};
	for (int i = 0; aead_list[i]; i++)
		for (size_t v = 0; v < sizeof vectors / sizeof *vectors; v++) {
			const struct aead *a = aead_list[i];
			uint8_t key[BUF], nonce[BUF], ad[BUF], plain[BUF], sealed[BUF], out[BUF];
			struct aead_key k;
			if (vectors[v].id != a->id)
				continue;
			assert_int_equal(unhex(key, vectors[v].key), AEAD_KEY_BYTES);
			assert_int_equal(unhex(nonce, vectors[v].nonce), a->nonce_bytes);
			size_t ad_len = unhex(ad, vectors[v].ad);
			size_t len = unhex(plain, vectors[v].plain);
			int rc = aead_init(&k, a, key);
			if (rc == ERR_UNSUPPORTED && i > 0)
				continue;
			assert_int_equal(rc, 0);
			assert_int_equal(unhex(sealed, vectors[v].sealed), len + aead_tag(&k));
			assert_int_equal(a->seal(&k, nonce, ad, ad_len, plain, len, out), 0);
			assert_memory_equal(out, sealed, len + a->tag_bytes);
			assert_int_equal(
			        a->open(&k, nonce, ad, ad_len, sealed, len + a->tag_bytes, out), 0);
			assert_memory_equal(out, plain, len);
			aead_close(&k);
			tried[a->id]++;
		}
	assert_true(tried[AEAD_CHACHA20_POLY1305] >= 2);
	if (!tried[AEAD_AES_256_GCM])
		print_message("no AES-256-GCM on this machine\n");
	if (!tried[AEAD_AEGIS_128L])
		print_message("no AEGIS-128L in this libsodium\n");
}

static void test_nonces(void **state)
{
	(void)state;
	static const uint8_t want[AEAD_IDS][AEAD_NONCE_MAX] = {
	        [AEAD_CHACHA20_POLY1305] = {0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1},
	        [AEAD_AES_256_GCM] = {0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8},
	        [AEAD_AEGIS_128L] = {0, 0, 0, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1},
	};
	for (int id = 0; id < AEAD_IDS; id++) {
		uint8_t nonce[AEAD_NONCE_MAX];
		aead_nonce((enum aead_id)id, 0x0102030405060708u, nonce);
		assert_memory_equal(nonce, want[id], sizeof nonce);
	}
}

/* Calls fn with every pair of keys of one cipher that this machine can run, that of a provider with
 * itself included. */
typedef void (*with_keys_cb)(struct aead_key *seal, struct aead_key *open);
static void with_keys(with_keys_cb fn)
{
	static const uint8_t key[AEAD_KEY_BYTES] = {3, 1, 4, 1, 5, 9, 2, 6};
	int pairs = 0;
	for (int i = 0; aead_list[i]; i++)
		for (int j = 0; aead_list[j]; j++) {
			struct aead_key seal, open;
			if (aead_list[i]->id != aead_list[j]->id ||
			        aead_init(&seal, aead_list[i], key))
				continue;
			if (aead_init(&open, aead_list[j], key) == 0) {
				fn(&seal, &open);
				pairs++;
			}
			aead_close(&open);
			aead_close(&seal);
		}
	assert_true(pairs >= 1);
}

static void interoperate(struct aead_key *seal, struct aead_key *open)
{
	static const size_t lengths[] = {0, 1, 15, 16, 17, 63, 64, 65, 255, 256, 1000, 3000};
	uint8_t plain[BUF], sealed[BUF], back[BUF];
	uint64_t counter = 0xfffffffffffffff0u;
	randombytes_buf(plain, sizeof plain);
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		size_t len = lengths[i], tag = aead_tag(seal);
		const size_t ad_len = i * 7;
		assert_int_equal(aead_seal(seal, counter, plain, ad_len, plain, len, sealed), 0);
		assert_int_equal(
		        aead_open(open, counter, plain, ad_len, sealed, len + tag, back), 0);
		assert_memory_equal(back, plain, len);
		/* In place, with the two keys' parts exchanged: a key goes both ways. */
		memcpy(back, plain, len);
		assert_int_equal(aead_seal(open, counter, plain, ad_len, back, len, back), 0);
		assert_memory_equal(back, sealed, len + tag);
		assert_int_equal(aead_open(seal, counter, plain, ad_len, back, len + tag, back), 0);
		assert_memory_equal(back, plain, len);
		counter++;
	}
}

static void test_interoperate(void **state)
{
	(void)state;
	with_keys(interoperate);
}

#define LEN 70

static void assert_refused(
        struct aead_key *k, uint64_t counter, const char *ad, const uint8_t *in, size_t len)
{
	uint8_t out[BUF];
	memset(out, 0xaa, sizeof out);
	assert_int_equal(aead_open(k, counter, ad, strlen(ad), in, len, out), ERR_MISMATCH);
	assert_true(sodium_is_zero(out, len - aead_tag(k)));
	assert_int_equal(out[len - aead_tag(k)], 0xaa);
}

static void misuse(struct aead_key *seal, struct aead_key *open)
{
	uint8_t plain[LEN], sealed[BUF], out[BUF];
	size_t tag = aead_tag(seal);
	memset(plain, 7, sizeof plain);
	assert_int_equal(aead_seal(seal, 5, "head", 4, plain, LEN, sealed), 0);
	assert_refused(open, 4, "head", sealed, LEN + tag);
	assert_refused(open, 5u << 8, "head", sealed, LEN + tag);
	assert_refused(open, 5ull << 56, "head", sealed, LEN + tag);
	assert_refused(open, 5, "heae", sealed, LEN + tag);
	assert_refused(open, 5, "hea", sealed, LEN + tag);
	assert_refused(open, 5, "", sealed, LEN + tag);
	assert_refused(open, 5, "head", sealed + 1, LEN + tag - 1);
	for (size_t bit = 0; bit < 8 * (LEN + tag); bit++) {
		sealed[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		assert_refused(open, 5, "head", sealed, LEN + tag);
		sealed[bit / 8] ^= (uint8_t)(1u << (bit % 8));
	}
	for (size_t cut = tag; cut < LEN + tag; cut++)
		assert_refused(open, 5, "head", sealed, cut);
	for (size_t cut = 0; cut < tag; cut++)
		assert_int_equal(aead_open(open, 5, "head", 4, sealed, cut, out), ERR_FORMAT);
	/* None of it has harmed the key. */
	assert_int_equal(aead_open(open, 5, "head", 4, sealed, LEN + tag, out), 0);
	assert_memory_equal(out, plain, LEN);

	static const uint8_t other[AEAD_KEY_BYTES] = {3, 1, 4, 1, 5, 9, 2, 7};
	struct aead_key k;
	assert_int_equal(aead_init(&k, open->aead, other), 0);
	assert_refused(&k, 5, "head", sealed, LEN + tag);
	aead_close(&k);
	assert_true(sodium_is_zero((const uint8_t *)&k, sizeof k));
	aead_close(&k);

	assert_int_equal(
	        aead_seal(seal, 0, NULL, 0, plain, (size_t)AEAD_BYTES_MAX + 1, sealed), ERR_LIMIT);
	assert_int_equal(aead_seal(seal, 0, plain, AEAD_AD_MAX + 1, plain, 1, sealed), ERR_LIMIT);
	assert_int_equal(aead_open(open, 0, NULL, 0, sealed, SIZE_MAX, out), ERR_LIMIT);
	assert_int_equal(aead_open(open, 0, plain, AEAD_AD_MAX + 1, sealed, 40, out), ERR_LIMIT);
}

static void test_misuse(void **state)
{
	(void)state;
	with_keys(misuse);
}

static void test_measure(void **state)
{
	(void)state;
	struct aead_order o;
	struct err e;
	assert_int_equal(aead_measure(&o, &e), 0);
	assert_true(o.n >= 1 && o.n <= AEAD_IDS);
	for (int i = 0; i < o.n; i++) {
		const struct aead *a = aead_by_id(&o, (enum aead_id)o.id[i]);
		assert_non_null(a);
		assert_int_equal(a->id, o.id[i]);
		assert_true(i == 0 || o.bytes_per_s[o.id[i]] <= o.bytes_per_s[o.id[i - 1]]);
		print_message("%s by %s: %.2f GB/s\n", aead_name((int)a->id), a->provider,
		        o.bytes_per_s[a->id] / 1e9);
	}
	/* A cipher is in the order if any provider of it starts. */
	for (int i = 0; aead_list[i]; i++) {
		struct aead_key k;
		if (aead_init(&k, aead_list[i], (uint8_t[AEAD_KEY_BYTES]){0}) == 0)
			assert_non_null(aead_by_id(&o, aead_list[i]->id));
		aead_close(&k);
	}
	assert_non_null(aead_by_id(&o, AEAD_CHACHA20_POLY1305));
	assert_null(aead_by_id(&o, (enum aead_id)77));
	assert_string_equal(aead_name(-1), "unknown cipher");
	assert_string_equal(aead_name(AEAD_IDS), "unknown cipher");
}

static int choose(const struct aead_order *a, const struct aead_order *b)
{
	enum aead_id ab = AEAD_IDS, ba = AEAD_IDS;
	int rc = aead_choose(a, b, &ab);
	assert_int_equal(rc, aead_choose(b, a, &ba));
	assert_int_equal(ab, ba);
	return rc ? rc : (int)ab;
}

static void test_choice(void **state)
{
	(void)state;
	const struct aead_order plain = {1, {AEAD_CHACHA20_POLY1305}, {0}, {0}};
	const struct aead_order aes = {2, {AEAD_AES_256_GCM, AEAD_CHACHA20_POLY1305}, {0}, {0}};
	const struct aead_order chacha = {2, {AEAD_CHACHA20_POLY1305, AEAD_AES_256_GCM}, {0}, {0}};
	const struct aead_order all = {
	        3, {AEAD_AEGIS_128L, AEAD_AES_256_GCM, AEAD_CHACHA20_POLY1305}, {0}, {0}};
	const struct aead_order future = {4, {200, 77, AEAD_AES_256_GCM, 0}, {0}, {0}};
	const struct aead_order foreign = {2, {200, 77}, {0}, {0}}, none = {0};
	const struct aead_order liar = {255, {AEAD_AES_256_GCM, 9, 9, 9, 9, 9, 9, 9}, {0}, {0}};
	assert_int_equal(choose(&plain, &all), AEAD_CHACHA20_POLY1305);
	assert_int_equal(choose(&aes, &all), AEAD_AES_256_GCM);
	assert_int_equal(choose(&all, &all), AEAD_AEGIS_128L);
	assert_int_equal(choose(&aes, &aes), AEAD_AES_256_GCM);
	assert_int_equal(choose(&aes, &chacha), AEAD_CHACHA20_POLY1305); /* a tie */
	assert_int_equal(choose(&all, &future), AEAD_AES_256_GCM);
	assert_int_equal(choose(&all, &foreign), ERR_UNSUPPORTED);
	assert_int_equal(choose(&all, &none), ERR_UNSUPPORTED);
	assert_int_equal(choose(&all, &liar), AEAD_AES_256_GCM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_vectors),
	        cmocka_unit_test(test_nonces),
	        cmocka_unit_test(test_interoperate),
	        cmocka_unit_test(test_misuse),
	        cmocka_unit_test(test_measure),
	        cmocka_unit_test(test_choice),
	};
	return sodium_init() < 0 ? 1 : cmocka_run_group_tests_name("aead", tests, NULL, NULL);
}
