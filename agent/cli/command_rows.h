/* SPDX-License-Identifier: MIT */
/* The one table of subcommands. A row gives the enum, the prototype, the dispatch, the help text,
 * the completion and the entry of the man page. A new subcommand is a row here and a file with its
 * cmd_ function.
 *
 *     COMMAND(ID, name, arguments, least, most, settings, summary, flags...)
 *
 * arguments are those that are no flags, least and most say how many of them; settings is a
 * TAKEN_BY_ of options.h, 0: it takes no settings, and so no --config. A flag has a name, the name
 * of its value (NULL: it takes none), a help text, and perhaps the largest whole number that it
 * takes (from 1). Help texts begin with a small letter and have no full stop: they stand in lists.
 *
 * This file is included several times, with COMMAND as it is needed. */
#define REPLY_JSON {"--json", NULL, "print the agent's reply, JSON", 0}

/* clang-format off */
COMMAND(TRAIN, train, "", 0, 0, TAKEN_BY_TRAIN,
	"train a model on this machine", {0})
COMMAND(EVAL, eval, "WEIGHTS", 1, 1, TAKEN_BY_EVAL,
	"measure a checkpoint or exported weights on the test set",
	{"--json", NULL, "print the result as JSON", 0})
COMMAND(SAMPLE, sample, "WEIGHTS", 1, 1, TAKEN_BY_EVAL,
	"write text with a gpt",
	{"--prompt", "TEXT", "what to go on from: text, or ids where tokens are not bytes", 0},
	{"--tokens", "N", "how many to write; default 256", 1 << 30},
	{"--temperature", "X", "below 1: likelier tokens; 0: always the likeliest; default 1", 0},
	{"--top-k", "N", "draw from the N likeliest tokens alone", LIMIT_CLASSES},
	{"--random-seed", "N", "seed of what is drawn; default 1", 1 << 30})
COMMAND(EXPORT, export, "CHECKPOINT OUT", 2, 2, 0,
	"write the weights of a checkpoint for other programs",
	{"--layout", "NAME", "dunlin: a .safetensors file; huggingface: the folder of a GPT-2", 0})
COMMAND(INSPECT, inspect, "FILE", 1, 1, 0,
	"show the contents of a checkpoint, weights or data file",
	{"--json", NULL, "print the result as JSON", 0})
COMMAND(DATA, data, "check", 1, 1, TAKEN_BY_EVAL,
	"read all of the data, and tell what is there or damaged: data check --data PATH",
	{"--json", NULL, "print the result as JSON", 0})
COMMAND(CONFIG, config, "init|check|show [FILE]", 1, 2, TAKEN_BY_CONFIG,
	"write an example config, check one, or show the settings in force",
	{"--out", "FILE", "file that init writes, instead of stdout", 0},
	{"--force", NULL, "let init overwrite an existing file", 0})
COMMAND(KEYGEN, keygen, "", 0, 0, 0,
	"create the secret of a new flock, or the key of an owner",
	{"--out", "FILE", "file to create; - prints the secret instead", 0},
	{"--owner", NULL, "make an owner's key, which admits agents: see certify", 0})
COMMAND(CERTIFY, certify, "", 0, 0, 0,
	"write an invite, with which agents certify themselves",
	{"--owner-key", "FILE", "the owner's key, see keygen --owner", 0},
	{"--label", "NAME", "whose agents they are: letters, digits, dots, - and _", 0},
	{"--agents", "N", "agents of the invite that count at one time", INVITE_AGENTS_MAX},
	{"--expires", "DATE", "last day, UTC, 2027-01-31; or 2027-01-31T12:00:00Z", 0},
	{"--rate", "N", "samples a second that one of these agents may claim", INVITE_RATE_MAX},
	{"--out", "FILE", "file to create: a secret, like a key", 0})
COMMAND(REVOKE, revoke, "LABEL|ID...", 1, CLI_ARGS_MAX, 0,
	"add labels or agents to the owner's list of revoked ones",
	{"--owner-key", "FILE", "the owner's key, see keygen --owner", 0},
	{"--out", "FILE", "the list: read if it is there, then replaced", 0},
	{"--expires", "DATE", "last day of the list; default 366 days from now", 0})
COMMAND(AGENT, agent, "", 0, 0, TAKEN_BY_AGENT,
	"join a flock, train with it, and average parameters with its peers",
	{"--print-limits", NULL, "print every limit of the program, and exit", 0},
	{"--dry-run", NULL, "make all checks of a start, bind and write nothing, and exit", 0},
	{"--json", NULL, "of --dry-run: print the result as JSON", 0})
COMMAND(INVITE, invite, "", 0, 0, TAKEN_BY_ASKER,
	"print a token that joins the run of an agent on this machine",
	{"--out", "FILE", "file to create for the token, which is a secret, like a key", 0},
	{"--no-secret", NULL, "leave the secret out: who joins needs the key file, too", 0},
	{"--key", "FILE", "file of the flock's secret; default: the agent's own", 0},
	{"--invite", "FILE", "the owner's invite for who joins, see certify", 0},
	{"--seed", "HOST[:PORT]", "address to join at, before those that the agent knows", 0},
	{"--json", NULL, "print the result as JSON", 0})
COMMAND(JOIN, join, "[TOKEN]", 0, 1, TAKEN_BY_AGENT,
	"join a run by its token: take its settings from a peer, and start an agent",
	{"--token-file", "FILE", "file of the token; default: the argument, else stdin", 0},
	{"--yes", NULL, "ask nothing", 0})
COMMAND(PLAN, plan, "", 0, 0, TAKEN_BY_AGENT,
	"tell memory, traffic and steps of an agent with these settings, without training",
	{"--agents", "N", "agents that train together; default 2", 65536},
	{"--bandwidth", "MBIT", "megabits a second, to tell how long an exchange takes", 0},
	{"--step-ms", "X", "milliseconds of a step, where the gate counts in steps", 0},
	{"--json", NULL, "print the result as JSON", 0})
COMMAND(LS, ls, "", 0, 0, 0,
	"list the agents of this user on this machine",
	{"--json", NULL, "print the result as JSON", 0})
COMMAND(STATUS, status, "", 0, 0, TAKEN_BY_ASKER,
	"show the state of an agent on this machine", REPLY_JSON)
COMMAND(PEERS, peers, "", 0, 0, TAKEN_BY_ASKER,
	"show the peers that an agent on this machine knows", REPLY_JSON)
COMMAND(TOP, top, "[SOCKET...]", 0, CLI_ARGS_MAX, TAKEN_BY_ASKER,
	"watch agents on this machine, one row each, until Ctrl-C",
	{"--every", "SECONDS", "time between two updates; default 1, without a terminal 10", 0},
	{"--log", "FILE", "append one line for each agent to FILE every second", 0},
	{"--until-gone", NULL, "exit when the last agent is gone", 0},
	{"--notes", NULL, "show the lines of stdin above the rows", 0})
COMMAND(PLOT, plot, "LOG...", 1, CLI_ARGS_MAX, 0,
	"draw metrics files or logs of top, one line for each agent",
	{"--out", "FILE", "file to write, .svg or .html", 0},
	{"--y", "NAMES", "what to draw: loss, accuracy, a+b, …; commas between drawings", 0},
	{"--x", "NAME", "against what: time (default), step, samples, clock, …", 0},
	{"--title", "TEXT", "the title; default: what is drawn", 0},
	{"--events", "FILE", "lines with a time, a tab and a text, to be marked", 0})
COMMAND(LEDGER, ledger, "", 0, 0, TAKEN_BY_ASKER,
	"show the last decisions of an agent's gate", REPLY_JSON,
	{"--max", "N", "show at most N entries; default 64", LEDGER_ENTRIES})
COMMAND(EXCHANGES, exchanges, "", 0, 0, TAKEN_BY_ASKER,
	"show the last exchanges of an agent", REPLY_JSON,
	{"--max", "N", "show at most N entries; default 64", FLOCK_RECENT})
COMMAND(PAUSE, pause, "", 0, 0, TAKEN_BY_ASKER,
	"pause the training of an agent", REPLY_JSON)
COMMAND(RESUME, resume, "", 0, 0, TAKEN_BY_ASKER,
	"resume the training of a paused agent", REPLY_JSON)
COMMAND(CHECKPOINT, checkpoint, "", 0, 0, TAKEN_BY_ASKER,
	"make an agent write a checkpoint, and wait for it",
	{"--json", NULL, "print step and age of the checkpoint, JSON", 0})
COMMAND(LEAVE, leave, "", 0, 0, TAKEN_BY_ASKER,
	"make an agent leave its flock, and wait until it has ended", REPLY_JSON)
COMMAND(SIMULATE, simulate, "init [FILE] | SCENARIO | RESULT...", 1, CLI_ARGS_MAX, 0,
	"run many agents in this process by a scenario, or compare such runs",
	{"--check", NULL, "check the scenario, and tell memory and time that it needs", 0},
	{"--measure", NULL, "measure agents.step_ms here, and print the scenario with it", 0},
	{"--threads", "N", "threads to train with; default: all cores", LIMIT_THREADS},
	{"--seed", "N", "seed of the first run, instead of record.seed", INT_MAX},
	{"--out", "PATH", "folder for results, trace and report; of --compare: the report", 0},
	{"--resume", NULL, "go on with the runs that --out does not have complete", 0},
	{"--json", NULL, "print the results as JSON lines", 0},
	{"--compare", NULL, "compare results of earlier runs: their folders or files", 0},
	{"--best-lr", NULL, "of --compare: only the best learning rate of each", 0})
COMMAND(HELP, help, "[SUBCOMMAND]", 0, 1, 0,
	"show this help, or the help of a subcommand", {0})
COMMAND(VERSION, version, "", 0, 0, 0,
	"show the version", {0})
/* clang-format on */

#undef REPLY_JSON
#undef COMMAND
