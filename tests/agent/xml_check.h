/* SPDX-License-Identifier: MIT */
/* Whether a text is well-formed XML of the kind that we write: elements, attributes in double
 * quotes, text, the five entities and numbers; no comments, no CDATA. HTML pages of ours are such
 * a text, too, but for their first line and void elements. */
#ifndef DUNLIN_TESTS_AGENT_XML_CHECK_H
#define DUNLIN_TESTS_AGENT_XML_CHECK_H

#include "agent/base/buf.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define XML_DEPTH 32
#define XML_NAME 32

/* Past one entity or one character of text, or NULL. stop ends an attribute. */
static inline const char *xml__text(const char *s, char stop)
{
	static const char *const entity[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
	if (*s == '&') {
		for (size_t i = 0; i < sizeof entity / sizeof *entity; i++)
			if (!strncmp(s, entity[i], strlen(entity[i])))
				return s + strlen(entity[i]);
		return NULL;
	}
	if (*s == '<' || *s == stop || ((unsigned char)*s < 0x20 && *s != '\n' && *s != '\t'))
		return NULL;
	size_t n = utf8_bytes(s);
	return n ? s + n : NULL;
}

static inline const char *xml__name(const char *s, char out[XML_NAME])
{
	size_t n = 0;
	while ((isalnum((unsigned char)*s) || *s == '-' || *s == ':') && n < XML_NAME - 1)
		out[n++] = *s++;
	out[n] = '\0';
	return n ? s : NULL;
}

/* Past the attributes of an element, to its > or />. Each may be there once. */
static inline const char *xml__attributes(const char *s)
{
	char seen[16][XML_NAME];
	int n = 0;
	while (*s == ' ') {
		s = xml__name(s + 1, seen[n]);
		if (!s || s[0] != '=' || s[1] != '"')
			return NULL;
		for (int i = 0; i < n; i++)
			if (!strcmp(seen[i], seen[n]))
				return NULL;
		for (s += 2; *s != '"';)
			if (!(s = xml__text(s, '"')))
				return NULL;
		s++;
		if (++n == 16)
			return NULL;
	}
	return s;
}

static inline bool xml__fail(const char *whole, const char *at)
{
	fprintf(stderr, "not well-formed at byte %d: %.80s\n", (int)(at - whole), at);
	return false;
}

/* Elements in void_list (" br meta ") have no end. Script and style hold no entities. */
static inline bool xml_well_formed(const char *text, const char *void_list)
{
	char open[XML_DEPTH][XML_NAME], name[XML_NAME], probe[XML_NAME + 2];
	const char *s = text, *next;
	int depth = 0, elements = 0;
	for (; *s; s = next) {
		if (*s != '<') {
			next = depth || isspace((unsigned char)*s) ? xml__text(s, '\0') : NULL;
			if (!next)
				return xml__fail(text, s);
			continue;
		}
		if (s[1] == '/') {
			next = xml__name(s + 2, name);
			if (!next || *next++ != '>' || !depth || strcmp(open[--depth], name) != 0)
				return xml__fail(text, s);
			continue;
		}
		next = xml__name(s + 1, name);
		next = next ? xml__attributes(next) : NULL;
		if (!next || (!depth && elements++))
			return xml__fail(text, s);
		snprintf(probe, sizeof probe, " %s ", name);
		if (!strncmp(next, "/>", 2)) {
			next += 2;
		} else if (*next++ != '>' || depth == XML_DEPTH) {
			return xml__fail(text, s);
		} else if (!strstr(void_list, probe)) {
			strcpy(open[depth++], name);
			if (!strcmp(name, "style") || !strcmp(name, "script")) {
				next = strstr(next, "</");
				if (!next)
					return xml__fail(text, s);
			}
		}
	}
	return depth == 0 && elements == 1 ? true : xml__fail(text, s);
}

#endif
