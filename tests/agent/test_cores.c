/* SPDX-License-Identifier: MIT */
/* The CPU quota as containers and units write it: both versions of control groups, nested ones, a
 * part of the tree only, and files that say nothing. Each case is a folder with its own /proc and
 * /sys. */
#include "agent/base/cores.h"
#include "tests/support.h"

#include <errno.h>
#include <sys/stat.h>

#define V2_MOUNT "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1_MOUNTS                                                           \
	"29 28 0:25 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"        \
	"30 29 0:26 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n" \
	"31 29 0:27 / /sys/fs/cgroup/cpu rw master:3 - cgroup cgroup rw,cpu,cpuacct\n"

static char root[256];

static void begin(void **state)
{
	static int n;

	snprintf(root, sizeof root, "%s/%d", (const char *)*state, n++);
	assert_int_equal(mkdir(root, 0755), 0);
}

/* Writes root/path, folders included. */
static void put(const char *path, const char *text)
{
	char whole[1024];

	snprintf(whole, sizeof whole, "%s/%s", root, path);
	for (char *p = strchr(whole + strlen(root) + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = '\0';
		assert_true(mkdir(whole, 0755) == 0 || errno == EEXIST);
		*p = '/';
	}
	write_file(whole, text, strlen(text));
}

static void the_smallest_of_nested_quotas_counts(void **state)
{
	begin(state);
	put("proc/self/cgroup", "0::/kubepods.slice/pod1/main\n");
	put("proc/self/mountinfo", V2_MOUNT);
	assert_int_equal(cores_quota(root), 0); /* no files yet */
	put("sys/fs/cgroup/kubepods.slice/pod1/main/cpu.max", "max 100000\n");
	put("sys/fs/cgroup/kubepods.slice/pod1/cpu.max", "250000 100000\n");
	assert_int_equal(cores_quota(root), 3);
	put("sys/fs/cgroup/kubepods.slice/cpu.max", "800000 100000\n");
	assert_int_equal(cores_quota(root), 3);
	put("sys/fs/cgroup/kubepods.slice/pod1/main/cpu.max", "50000 100000\n");
	assert_int_equal(cores_quota(root), 1);
	put("sys/fs/cgroup/kubepods.slice/pod1/main/cpu.max", "max 100000\n");
	put("sys/fs/cgroup/cpu.max", "200000 100000\n"); /* as a container sees its own */
	assert_int_equal(cores_quota(root), 2);
}

static void version_1_has_a_tree_for_the_cpu_alone(void **state)
{
	begin(state);
	put("proc/self/cgroup", "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n2:cpuset:/\n");
	put("proc/self/mountinfo", V1_MOUNTS);
	put("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "-1\n");
	put("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "100000\n");
	assert_int_equal(cores_quota(root), 0);
	put("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "150000\n");
	assert_int_equal(cores_quota(root), 2);
	put("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "50000\n");
	assert_int_equal(cores_quota(root), 3);
	put("sys/fs/cgroup/cpu/docker/cpu.cfs_quota_us", "50000\n");
	put("sys/fs/cgroup/cpu/docker/cpu.cfs_period_us", "50000\n");
	assert_int_equal(cores_quota(root), 1);
}

/* The container's group is the top of what is mounted, or of what it may see at all. */
static void a_part_of_the_tree_is_enough(void **state)
{
	begin(state);
	put("proc/self/cgroup", "3:cpu,cpuacct:/docker/abc/below\n");
	put("proc/self/mountinfo",
	        "31 29 0:27 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n");
	put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
	put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
	assert_int_equal(cores_quota(root), 4);
	put("sys/fs/cgroup/cpu/below/cpu.cfs_quota_us", "300000\n");
	put("sys/fs/cgroup/cpu/below/cpu.cfs_period_us", "100000\n");
	assert_int_equal(cores_quota(root), 3);
	put("proc/self/cgroup", "3:cpu,cpuacct:/docker/abcd/below\n"); /* is not below it */
	assert_int_equal(cores_quota(root), 4);
	put("proc/self/cgroup", "0::/../outside\n");
	put("proc/self/mountinfo", V2_MOUNT);
	put("sys/fs/cgroup/cpu.max", "500000 100000\n");
	assert_int_equal(cores_quota(root), 5);
}

static void what_cannot_be_read_is_no_quota(void **state)
{
	static const char *const odd[] = {"", "max\n", "100000\n", "100000 0\n", "-5 100000\n",
	        "many cores\n", "99999999999999999 1\n"};

	begin(state);
	assert_int_equal(cores_quota(root), 0);
	put("proc/self/mountinfo", V2_MOUNT "nothing\n1 2 3:4 / /x - cgroup2\n");
	put("sys/fs/cgroup/cpu.max", "100000 100000\n");
	assert_int_equal(cores_quota(root), 0); /* we are in no group */
	put("proc/self/cgroup", "nothing\n0:\n\n0::/\n");
	assert_int_equal(cores_quota(root), 1);
	for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
		put("sys/fs/cgroup/cpu.max", odd[i]);
		assert_int_equal(cores_quota(root), 0);
	}
}

static void cores_and_quota_both_limit(void **state)
{
	(void)state;
	assert_true(cores_limited(8, 0).n == 8 && !cores_limited(8, 0).quota);
	assert_true(cores_limited(8, 2).n == 2 && cores_limited(8, 2).quota);
	assert_true(cores_limited(2, 8).n == 2 && !cores_limited(2, 8).quota);
	assert_true(cores_limited(2, 2).n == 2 && !cores_limited(2, 2).quota);
	assert_true(cores_usable().n >= 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(the_smallest_of_nested_quotas_counts),
	        cmocka_unit_test(version_1_has_a_tree_for_the_cpu_alone),
	        cmocka_unit_test(a_part_of_the_tree_is_enough),
	        cmocka_unit_test(what_cannot_be_read_is_no_quota),
	        cmocka_unit_test(cores_and_quota_both_limit),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
