/* SPDX-License-Identifier: MIT */
/* Where an agent keeps its state and listens for commands: what the settings say, or by its name.
 */
#ifndef DUNLIN_AGENT_CONFIG_PATHS_H
#define DUNLIN_AGENT_CONFIG_PATHS_H

#include "agent/config/config.h"

/* agent.state_dir, or ${XDG_STATE_HOME:-~/.local/state}/dunlin/NAME. */
int paths_state(const struct config *c, char out[LIMIT_PATH], struct err *e) MUST_CHECK;

/* agent.socket, or $XDG_RUNTIME_DIR/dunlin/NAME.sock; where there is no such folder, or with a
 * state folder of its own, agent.sock in that. */
int paths_socket(const struct config *c, char out[LIMIT_PATH], struct err *e) MUST_CHECK;

/* Where a guest attaches: the same with .guest in place of .sock. */
int paths_guest(const struct config *c, char out[LIMIT_PATH], struct err *e) MUST_CHECK;

/* run.out, or runs/fashion for `dunlin train`, or the folder run in an agent's state. */
int paths_out(const struct config *c, bool agent, char out[LIMIT_PATH], struct err *e) MUST_CHECK;

/* Letters, digits, - and _, and no - at the beginning. */
bool paths_name_ok(const char *name);

#endif
