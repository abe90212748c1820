# SPDX-License-Identifier: MIT
# Real agents are watched through tests/integration/ctl and attacked by tests/attack/attack.
AGENT_TOOLS = tests/attack/attack tests/attack/rogue tests/integration/ctl
check_PROGRAMS += $(AGENT_TOOLS)
tests_attack_attack_SOURCES = \
	tests/attack/attack.c \
	tests/attack/attack.h \
	tests/attack/crowd.c \
	tests/attack/damage.c \
	tests/attack/insider.c \
	tests/attack/member.c \
	tests/attack/member.h \
	tests/attack/path.c \
	tests/attack/proxy.c \
	tests/attack/rumour.c \
	tests/attack/session.c \
	tests/attack/session.h \
	tests/attack/starve.c \
	tests/attack/stranger.c
tests_attack_attack_LDADD = $(NET_LIBS) -lpthread
# An agent gone wrong: the agent's own objects, with some functions put between them.
tests_attack_rogue_SOURCES = agent/main.c tests/attack/later.c tests/attack/rogue.c \
	tests/attack/twist.c
tests_attack_rogue_LDADD = $(DUNLIN_LIBS)
tests_attack_rogue_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=bulk_start -Wl,--wrap=exchange_step \
	-Wl,--wrap=transport_post -Wl,--wrap=gossip_step -Wl,--wrap=send -Wl,--wrap=trainer_step \
	-Wl,--wrap=wire_encode -Wl,--wrap=wire_encode_gossip -Wl,--wrap=wire_sign_update \
	-Wl,--wrap=flock_init -Wl,--wrap=flock_step -Wl,--wrap=transport_bulk_keep
