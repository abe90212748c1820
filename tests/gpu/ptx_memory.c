/* SPDX-License-Identifier: MIT */
/* Where an instruction's address leads: parameters, a thread's own memory, shared or global memory.
 * Shared memory has a shadow like global memory: who wrote and who read each 4 bytes since the last
 * barrier, and whether they were ever written. Bad accesses are faults, and go into a sink. */
#include "tests/gpu/ptx_thread.h"

#define MANY UINT16_MAX

static unsigned char sink[16]; /* where bad accesses go */

static void shared_fault(const struct ptx_thread *t, const struct ptx_ins *n, const char *what)
{
	if (ptx_tell())
		gpu_fault("shared", "%s: PTX line %d: block %u thread %u %s",
		        ptx_block.kernel->name, n->line, ptx_block.who.block, t->number, what);
}

static void check_shared(struct ptx_thread *t, const struct ptx_ins *n, struct ptx_shared_cell *c,
        enum gpu_access access)
{
	uint16_t me = (uint16_t)(t->number + 1);
	bool write = access != ACCESS_READ, both = access == ACCESS_ATOMIC && c->atomic;
	if (c->writer && c->write_epoch == ptx_block.who.epoch && c->writer != me && !both)
		shared_fault(t, n,
		        write ? "writes what another thread writes: a race"
		              : "reads what another thread writes: a race");
	else if (write && c->reader && c->read_epoch == ptx_block.who.epoch && c->reader != me)
		shared_fault(t, n, "writes what another thread reads: a race");
	if (access != ACCESS_WRITE && !c->written)
		shared_fault(t, n, "reads shared memory that was never written: uninitialised");
	if (write) {
		c->writer = me;
		c->write_epoch = ptx_block.who.epoch;
		c->written = true;
		c->atomic = access == ACCESS_ATOMIC;
	} else {
		bool others = c->reader && c->read_epoch == ptx_block.who.epoch && c->reader != me;
		c->reader = others ? MANY : me;
		c->read_epoch = ptx_block.who.epoch;
	}
}

static unsigned char *shared_at(struct ptx_thread *t, const struct ptx_ins *n, uint64_t at,
        size_t bytes, enum gpu_access access)
{
	uint64_t o =
	        at >= PTX_DYNAMIC ? at - PTX_DYNAMIC + ptx_block.static_bytes : at - PTX_SHARED;
	bool inside =
	        o + bytes <= (at >= PTX_DYNAMIC ? ptx_block.shared_bytes : ptx_block.static_bytes);
	for (size_t i = o / 4; inside && i <= (o + bytes - 1) / 4; i++)
		inside = ptx_block.shadow[i].ours;
	if (!inside) {
		shared_fault(t, n, "is out of bounds of shared memory");
		return sink;
	}
	for (size_t i = o / 4; i <= (o + bytes - 1) / 4; i++)
		check_shared(t, n, &ptx_block.shadow[i], access);
	return ptx_block.shared + o;
}

unsigned char *ptx_at(struct ptx_thread *t, const struct ptx_ins *n, size_t part, size_t bytes,
        enum gpu_access access)
{
	uint64_t a = (n->base >= 0 ? t->r[n->base] : 0) + (uint64_t)n->offset + part * bytes;
	if (n->space == SPACE_PARAM) {
		if (a + bytes > ptx_block.kernel->param_bytes + 16)
			gpu_die("PTX line %d: past the parameters", n->line);
		return (unsigned char *)(uintptr_t)(ptx_block.arguments + a);
	}
	if (a % bytes != 0) {
		if (ptx_tell())
			gpu_fault("align", "%s: PTX line %d: %zu bytes at %#lx",
			        ptx_block.kernel->name, n->line, bytes, (unsigned long)a);
		return sink;
	}
	if (a >= PTX_LOCAL && a + bytes <= PTX_LOCAL + ptx_block.kernel->local_bytes)
		return t->local + (a - PTX_LOCAL);
	if (a >= PTX_SHARED && a < PTX_LOCAL && n->space != SPACE_GLOBAL)
		return shared_at(t, n, a, bytes, access);
	if (n->space == SPACE_SHARED) {
		shared_fault(t, n, "is out of bounds of shared memory");
		return sink;
	}
	ptx_block.who.thread = t->number;
	unsigned char *p = gpu_touch(a, bytes, access, &ptx_block.who);
	return p ? p : sink;
}
