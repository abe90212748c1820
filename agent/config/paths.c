/* SPDX-License-Identifier: MIT */
/* The places are those of the XDG base directory specification, which also says that a variable
 * with a relative path in it is to be ignored. `dunlin status` finds an agent by the same rules as
 * the agent itself, so both must be called with the same name, state folder or socket. */
#include "agent/config/paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

/* The socket's address has a fixed array for the path. */
#define SOCKET_PATH_MAX (sizeof((struct sockaddr_un *)0)->sun_path)

bool paths_name_ok(const char *name)
{
	const char *chars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
	return name[0] && name[0] != '-' && strspn(name, chars) == strlen(name);
}

/* The folder that a variable names, or NULL. */
static const char *folder_of(const char *variable)
{
	const char *v = getenv(variable);
	return v && v[0] == '/' ? v : NULL;
}

static int fits(int n, struct err *e)
{
	if (n >= 0 && n < LIMIT_PATH)
		return 0;
	return err_set(e, ERR_LIMIT, "a path is longer than %d bytes", LIMIT_PATH - 1);
}

int paths_state(const struct config *c, char out[LIMIT_PATH], struct err *e)
{
	const char *state = folder_of("XDG_STATE_HOME"), *home = folder_of("HOME");
	if (c->agent.state_dir[0])
		return fits(snprintf(out, LIMIT_PATH, "%s", c->agent.state_dir), e);
	if (state)
		return fits(snprintf(out, LIMIT_PATH, "%s/dunlin/%s", state, c->agent.name), e);
	if (!home)
		return err_set(e, ERR_NOTFOUND,
		        "HOME is not set: name the state folder with --state-dir");
	return fits(snprintf(out, LIMIT_PATH, "%s/.local/state/dunlin/%s", home, c->agent.name), e);
}

int paths_socket(const struct config *c, char out[LIMIT_PATH], struct err *e)
{
	const char *runtime = folder_of("XDG_RUNTIME_DIR");
	char state[LIMIT_PATH];
	int rc;
	if (c->agent.socket[0]) {
		rc = fits(snprintf(out, LIMIT_PATH, "%s", c->agent.socket), e);
	} else if (runtime && !c->agent.state_dir[0]) {
		rc = fits(
		        snprintf(out, LIMIT_PATH, "%s/dunlin/%s.sock", runtime, c->agent.name), e);
	} else {
		rc = paths_state(c, state, e);
		if (rc == 0)
			rc = fits(snprintf(out, LIMIT_PATH, "%s/agent.sock", state), e);
	}
	if (rc == 0 && strlen(out) >= SOCKET_PATH_MAX)
		rc = err_set(e, ERR_LIMIT,
		        "%.120s: a socket's path has at most %zu bytes: choose a shorter --socket",
		        out, SOCKET_PATH_MAX - 1);
	return rc;
}

int paths_guest(const struct config *c, char out[LIMIT_PATH], struct err *e)
{
	char control[LIMIT_PATH];
	int rc = paths_socket(c, control, e);
	if (rc)
		return rc;
	size_t n = strlen(control);
	if (n > 5 && strcmp(control + n - 5, ".sock") == 0)
		n -= 5;
	rc = fits(snprintf(out, LIMIT_PATH, "%.*s.guest", (int)n, control), e);
	if (rc == 0 && strlen(out) >= SOCKET_PATH_MAX)
		rc = err_set(e, ERR_LIMIT,
		        "%.120s: a socket's path has at most %zu bytes: choose a shorter --socket",
		        out, SOCKET_PATH_MAX - 1);
	return rc;
}

int paths_out(const struct config *c, bool agent, char out[LIMIT_PATH], struct err *e)
{
	char state[LIMIT_PATH];
	if (c->run.out[0] || !agent)
		return fits(snprintf(out, LIMIT_PATH, "%s",
		                    c->run.out[0] ? c->run.out : "runs/fashion"),
		        e);
	int rc = paths_state(c, state, e);
	return rc ? rc : fits(snprintf(out, LIMIT_PATH, "%s/run", state), e);
}
