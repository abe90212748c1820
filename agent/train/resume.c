/* SPDX-License-Identifier: MIT */
/* The happy path: the newest checkpoint is whole and of this model. One that is damaged has a name
 * of its own afterwards, and the one before it is tried; one of another model is an error, since
 * only the user can say what is meant. */
#include "agent/train/resume.h"

#include "agent/base/log.h"

static void tell_damaged(const char *path, const struct err *why, void *arg)
{
	(void)arg;
	log_warn("%s: put aside as %s.damaged, the checkpoint before it is tried", why->msg, path);
}

int resume_newest(struct trainer *t, const struct run_dir *dir, char path[RUN_DIR_PATH],
        bool *resumed, struct err *e)
{
	struct trainer_notes notes = {0};
	struct checkpoint c;
	int rc = run_dir_newest(dir, &c, path, tell_damaged, NULL, e);

	*resumed = rc == 0;
	if (rc != 0)
		return rc == ERR_NOTFOUND ? 0 : rc;
	rc = trainer_restore(t, &c, &notes, e);
	checkpoint_close(&c);
	if (rc != 0)
		return err_prefix(e, "%s", path);
	for (int i = 0; i < notes.n; i++)
		log_warn("%s", notes.text[i]);
	return 0;
}
