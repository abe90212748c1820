# SPDX-License-Identifier: MIT
# The agent: libbase, libagent, and the program.

libbase_a_SOURCES = \
	agent/base/buf.c \
	agent/base/buf.h \
	agent/base/cores.c \
	agent/base/cores.h \
	agent/base/err.c \
	agent/base/err.h \
	agent/base/exit_code.c \
	agent/base/exit_code.h \
	agent/base/limits.h \
	agent/base/log.c \
	agent/base/log.h \
	agent/base/rng.c \
	agent/base/rng.h \
	agent/base/sketch_hash.h \
	agent/base/textlist.c \
	agent/base/textlist.h \
	agent/base/thread.c \
	agent/base/thread.h

libagent_a_SOURCES = \
	agent/cli/ask.c \
	agent/cli/ask.h \
	agent/cli/cli.c \
	agent/cli/cli.h \
	agent/cli/cli_help.c \
	agent/cli/cmd_agent.c \
	agent/cli/cmd_config.c \
	agent/cli/cmd_eval.c \
	agent/cli/cmd_export.c \
	agent/cli/cmd_inspect.c \
	agent/cli/cmd_keygen.c \
	agent/cli/cmd_ledger.c \
	agent/cli/cmd_pause.c \
	agent/cli/cmd_status.c \
	agent/cli/cmd_top.c \
	agent/cli/cmd_train.c \
	agent/cli/commands.h \
	agent/cli/inspect.c \
	agent/cli/inspect.h \
	agent/cli/progress.c \
	agent/cli/progress.h \
	agent/cli/top_view.c \
	agent/cli/top_view.h \
	agent/config/config.c \
	agent/config/config.h \
	agent/config/config_model.c \
	agent/config/config_model.h \
	agent/config/config_print.c \
	agent/config/hostport.c \
	agent/config/hostport.h \
	agent/config/options.c \
	agent/config/options.h \
	agent/config/paths.c \
	agent/config/paths.h \
	agent/config/settings.c \
	agent/config/suggest.c \
	agent/control/client.c \
	agent/control/client.h \
	agent/control/control.c \
	agent/control/control.h \
	agent/control/control_flock.c \
	agent/control/control_flock.h \
	agent/control/control_reply.c \
	agent/control/watch.c \
	agent/control/watch.h \
	agent/daemon/agent.c \
	agent/daemon/agent.h \
	agent/daemon/signals.c \
	agent/daemon/signals.h \
	agent/daemon/startup.c \
	agent/daemon/startup.h \
	agent/daemon/training.c \
	agent/daemon/training.h \
	agent/drivers/driver.c \
	agent/drivers/driver.h \
	agent/drivers/driver_internal.h \
	agent/drivers/on_bulk.c \
	agent/drivers/on_learner.c \
	agent/drivers/on_transport.c \
	agent/drivers/say.c \
	agent/drivers/view.c \
	agent/json/jsonout.c \
	agent/json/jsonout.h \
	agent/json/jsontext.c \
	agent/json/jsontext.h \
	agent/node/join_hint.c \
	agent/node/join_hint.h \
	agent/node/state_dir.c \
	agent/node/state_dir.h \
	agent/node/state_writer.c \
	agent/node/state_writer.h \
	agent/train/checkpoint.c \
	agent/train/checkpoint.h \
	agent/train/learner.c \
	agent/train/learner.h \
	agent/train/learner_copy.c \
	agent/train/learner_internal.h \
	agent/train/learner_keep.c \
	agent/train/learner_thread.c \
	agent/train/learner_thread.h \
	agent/train/metrics.c \
	agent/train/metrics.h \
	agent/train/resume.c \
	agent/train/resume.h \
	agent/train/run_dir.c \
	agent/train/run_dir.h \
	agent/train/trainer.c \
	agent/train/trainer.h \
	agent/train/trainer_state.c \
	agent/train/weights.c \
	agent/train/weights.h

dunlin_SOURCES = agent/main.c
dunlin_LDADD = $(DUNLIN_LIBS)
