/* SPDX-License-Identifier: MIT */
/* Runs a program that may not make memory executable, as systemd's MemoryDenyWriteExecute=yes does:
 * a filter refuses mmap that asks for both writing and executing, and mprotect that asks for
 * executing, with EPERM. Loading a shared library asks for neither.
 *
 *     no_exec_memory PROGRAM ARGUMENT...        no_exec_memory (alone): can this kernel do it?
 *
 * Exits with 77 where the kernel installs no filter. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CANNOT 77

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IS(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), (yes), (no))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, (what))

/* The third argument of all three calls is the protection; its low word holds all flags. The word
 * comes first in memory on little-endian machines, the only ones that Dunlin is built for. */
static int install(void)
{
	struct sock_filter f[] = {
	        LOAD(nr),
	        IS(__NR_mmap, 3, 0),
	        IS(__NR_mprotect, 6, 0),
	        IS(__NR_pkey_mprotect, 5, 0),
	        RETURN(SECCOMP_RET_ALLOW),
	        LOAD(args[2]),
	        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, PROT_WRITE | PROT_EXEC),
	        IS(PROT_WRITE | PROT_EXEC, 3, 0),
	        RETURN(SECCOMP_RET_ALLOW),
	        LOAD(args[2]),
	        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
	        RETURN(SECCOMP_RET_ERRNO | EPERM),
	        RETURN(SECCOMP_RET_ALLOW),
	};
	struct sock_fprog p = {.len = sizeof f / sizeof f[0], .filter = f};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p);
}

int main(int argc, char **argv)
{
	if (install() != 0) {
		fprintf(stderr, "no_exec_memory: no filter: %s\n", strerror(errno));
		return CANNOT;
	}
	if (argc < 2)
		return 0;
	execvp(argv[1], argv + 1);
	fprintf(stderr, "no_exec_memory: %s: %s\n", argv[1], strerror(errno));
	return 127;
}
