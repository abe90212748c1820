/* SPDX-License-Identifier: MIT */
/* The settings of a scenario that no config has, in the order of the file. As in
 * agent/config/setting_rows.h, a row gives the field, the key, the only range, the default and the
 * help text:
 *
 *     TYPE(section, field, range or list, default, help)
 *
 * This file is included several times, with the macros as they are needed. */

/* clang-format off */
SECTION(agents)
INT(agents, count, 1, SCENARIO_AGENTS_MAX, "8",
	"number of agents")
INT(agents, absent, 0, SCENARIO_AGENTS_MAX - 1, "0",
	"how many of them, the last ones, are not there before an event \"join\"")
REAL(agents, step_ms, 0.001, 3.6e6, "10",
	"compute time of one step of an agent of speed 1, in milliseconds")
CHOICE(agents, speed, scenario_speeds, "equal",
	"how speeds differ between agents")
REAL(agents, spread, 0, 0.95, "0",
	"of uniform: step times lie within this fraction of step_ms; of lognormal: its sigma")
REAL(agents, noise, 0, 0.95, "0",
	"each single step takes up to this fraction more or less")
REAL(agents, slow_share, 0, 1, "0",
	"fraction of the agents that are slower by slow_factor: stragglers")
REAL(agents, slow_factor, 1, 1000, "5",
	"how much slower they are")
CHOICE(agents, split, scenario_splits, "iid",
	"which samples an agent trains on; iid: all, in its own order")
REAL(agents, alpha, 1e-6, 1e6, "1",
	"Dirichlet concentration, for dirichlet; a smaller value skews the labels more")
INT(agents, labels, 1, LIMIT_CLASSES, "2",
	"labels per agent, for labels")
REAL(agents, inject_alpha, 0, 1, "0",
	"data injection: fraction of the agents that give samples to all others at a step")
REAL(agents, inject_beta, 0, 1, "0.5",
	"data injection: fraction of their own part of a batch that they give")
REAL(agents, churn_every_s, 0, 1e9, "0",
	"time between two replacements of agents, in seconds; 0: none")
REAL(agents, churn_share, 0, 1, "0.1",
	"fraction of the agents that crash then")
REAL(agents, churn_gap_s, 0, 1e9, "5",
	"time after which a new agent joins in the place of each, in seconds")
END(agents)

SECTION(network)
REAL(network, up_mbit, 0.001, 1e7, "100",
	"uplink of an agent, in Mbit/s")
REAL(network, down_mbit, 0.001, 1e7, "100",
	"downlink of an agent, in Mbit/s")
REAL(network, server_mbit, 0.001, 1e7, "1000",
	"both links of a parameter server, for the methods that have one")
REAL(network, latency_ms, 0, 60000, "1",
	"one way between two agents of one region, in milliseconds")
REAL(network, loss, 0, 0.9, "0",
	"fraction of the datagrams that are lost")
INT(network, regions, 1, SCENARIO_AGENTS_MAX, "1",
	"regions of agents; agent i is in region i mod regions")
REAL(network, region_latency_ms, 0, 60000, "0",
	"latency between two regions, in addition")
REAL(network, region_mbit, 0, 1e7, "0",
	"link of a region to all others, in each direction, shared by its agents; 0: no limit")
END(network)

SECTION(method)
CHOICE(method, kind, sim_method_names, "gossip_pair",
	"the method")
CHOICE(method, wire, scenario_wires, "fp32",
	"format of parameters on the wire: its bytes; baselines are not rounded")
INT(method, every, 1, 1000000, "20",
	"steps between two exchanges: H of local_sgd, tau of easgd and of gossip")
REAL(method, beta, 0, 1, "0.5",
	"gossip_pair, gossip_pull, gossip_push: weight of the other model")
REAL(method, fraction, 0, 1, "1",
	"fedavg: fraction C of the agents whose models are averaged")
REAL(method, local_epochs, 0.001, 1000, "1",
	"fedavg: local epochs E between two averages")
BOOL(method, only_chosen, "false",
	"fedavg: only the agents of that fraction train in a round")
INT(method, staleness, 0, 1000000, "3",
	"ssp: steps s that an agent may be ahead of the slowest")
REAL(method, alpha, 0, 1, "0.1",
	"easgd: the moving rate alpha")
CHOICE(method, topology, scenario_topologies, "ring",
	"dpsgd: the graph; exponential: neighbours 1, 2, 4 … away; one_peer: these in turn")
BOOL(method, average_first, "false",
	"dpsgd, selsync: a gradient is applied after the average, not before it")
REAL(method, delta, 0, 1e9, "0.3",
	"selsync: relative change of the smoothed squared gradient norm that makes all average")
REAL(method, smoothing, 0.0001, 1, "0.16",
	"selsync: weight of the newest gradient in that average")
REAL(method, gate_noise, 0, 10, "0",
	"selsync, to compare: noise of this log-sd decides, not the gradient; 0: the gradient")
CHOICE(method, control, scenario_controls, "none",
	"gossip again until the distance is small: share of control_max, or of gradient norms")
REAL(method, control_factor, 0, 1e6, "0.5",
	"control: the bound is this times control_max, or times the mean gradient norm")
REAL(method, control_max, 0, 1e12, "0",
	"control share: largest distance of the phase without control, see measure")
REAL(method, control_from, 0, 1, "0",
	"control: where its phase begins, as a fraction of the run")
REAL(method, control_to, 0, 1, "1",
	"control: where its phase ends")
CHOICE(method, control_by, scenario_controls_by, "truth",
	"dpsgd: by the true distance, or by the agents' estimate of it")
REAL(method, timeout_s, 0, 3600, "10",
	"collectives: how long the others wait for an agent that crashed")
END(method)

SECTION(record)
INT(record, seed, 0, 9007199254740991.0, "1",
	"seed of everything that is drawn; the first one of several runs")
INT(record, seeds, 1, SCENARIO_SEEDS_MAX, "1",
	"runs, with seeds one after the other")
INT(record, points, 1, 10000, "20",
	"evaluations in a run, evenly spread over its samples")
INT(record, test_samples, 1, LIMIT_SAMPLES, "10000",
	"largest number of test samples in an evaluation; the last one takes all")
BOOL(record, local, "false",
	"evaluate each agent's own model, and take the mean; otherwise the mean of the models")
REAL(record, target, 0, 1, "0",
	"accuracy whose time is told; 0: none")
REAL(record, max_s, 0, 1e9, "0",
	"virtual time at which a run ends at the latest, in seconds; 0: none")
BOOL(record, train, "true",
	"false: no gradients are computed: a model of bytes and time only")
INT(record, parameters, 0, LIMIT_PARAMS, "0",
	"parameters whose bytes are modelled; 0: those of the model")
INT(record, samples, 0, LIMIT_SAMPLES, "0",
	"samples of an epoch, where nothing is trained and so no data is read")
END(record)
/* clang-format on */

#undef INT
#undef REAL
#undef BOOL
#undef CHOICE
#undef SECTION
#undef END
