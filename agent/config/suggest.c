/* SPDX-License-Identifier: MIT */
/* "Did you mean": what an unknown word was likely meant to be.
 *
 * The measure is the number of letters inserted, dropped, replaced or swapped with a neighbour
 * (optimal string alignment). A suggestion that is far off is worse than none, so about one letter
 * in three may differ. For config keys the last part counts, compared with the last part of every
 * key, with its flag, and with words that other programs use for the same thing: that is how
 * "lerning_rate" finds train.lr. */
#include "agent/config/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_MAX 48

static int min3(int a, int b, int c)
{
	int ab = a < b ? a : b;
	return ab < c ? ab : c;
}

int nearness(const char *typed, const char *candidate)
{
	int n = (int)strnlen(typed, WORD_MAX + 1), m = (int)strnlen(candidate, WORD_MAX + 1);
	int allowed = ((n > m ? n : m) + 1) / 3;
	if (n > WORD_MAX || m > WORD_MAX || abs(n - m) > allowed)
		return -1;
	int d[WORD_MAX + 1][WORD_MAX + 1];
	for (int i = 0; i <= n; i++)
		d[i][0] = i;
	for (int j = 0; j <= m; j++)
		d[0][j] = j;
	for (int i = 1; i <= n; i++) {
		for (int j = 1; j <= m; j++) {
			int same = typed[i - 1] == candidate[j - 1];
			d[i][j] = min3(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + !same);
			if (i > 1 && j > 1 && typed[i - 1] == candidate[j - 2] &&
			        typed[i - 2] == candidate[j - 1] && d[i - 2][j - 2] + 1 < d[i][j])
				d[i][j] = d[i - 2][j - 2] + 1;
		}
	}
	return d[n][m] <= allowed ? d[n][m] : -1;
}

const char *nearest(const char *typed, const char *const *candidates)
{
	const char *best = NULL;
	int best_d = WORD_MAX;
	for (int i = 0; candidates[i]; i++) {
		int d = nearness(typed, candidates[i]);
		if (d >= 0 && d < best_d) {
			best_d = d;
			best = candidates[i];
		}
	}
	return best;
}

/* Splits "data.augment.flip" after the last point. */
static const char *leaf_of(const char *key)
{
	const char *dot = strrchr(key, '.');
	return dot ? dot + 1 : key;
}

static void consider(int d, const char *what, size_t len, int *best, char out[LIMIT_NAME])
{
	if (d < 0 || d >= *best || len >= LIMIT_NAME)
		return;
	*best = d;
	memcpy(out, what, len);
	out[len] = 0;
}

int setting_nearness(const char *word, const struct setting *s)
{
	char words[256], *save = NULL;
	int best = -1;
	snprintf(words, sizeof words, "%s %s %s", leaf_of(s->key), s->flag + 2,
	        s->also ? s->also : "");
	for (char *p = words; *p; p++)
		if (*p == '-')
			*p = '_';
	for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		int d = nearness(word, w);
		if (d >= 0 && (best < 0 || d < best))
			best = d;
	}
	return best;
}

const char *setting_nearest_key(const char *key, char out[LIMIT_NAME])
{
	char typed[WORD_MAX + 1];
	const char *leaf = leaf_of(key);
	size_t section = (size_t)(leaf - key);
	int best = 2 * WORD_MAX;
	snprintf(typed, sizeof typed, "%s", leaf);
	if (strlen(leaf) > WORD_MAX)
		return NULL;
	for (char *p = typed; *p; p++)
		*p = *p == '-' ? '_' : *p;
	for (int i = 0; i < n_settings; i++) {
		const char *k = settings[i].key;
		bool inside = strncmp(k, key, section) == 0;
		/* Doubled, so that the right section decides between equals. */
		int d = setting_nearness(typed, &settings[i]);
		consider(d < 0 ? d : 2 * d + !inside, k, strlen(k), &best, out);
		/* The name of a section at this place. */
		const char *dot = inside ? strchr(k + section, '.') : NULL;
		if (dot) {
			char name[LIMIT_NAME];
			snprintf(name, sizeof name, "%.*s", (int)(dot - k - (long)section),
			        k + section);
			d = nearness(typed, name);
			consider(d < 0 ? d : 2 * d, k, (size_t)(dot - k), &best, out);
		}
	}
	return best < 2 * WORD_MAX ? out : NULL;
}
