/* SPDX-License-Identifier: MIT */
/* Ranges and ticks. Ticks are 1, 2 or 5 times a power of ten in the unit that is shown, so seconds
 * become minutes before ticks are chosen. Values of any size may come: they are kept within 1e150,
 * and a range too narrow for its ticks to differ is widened. */
#include "agent/report/axis.h"

#include <math.h>
#include <stdio.h>

#define VALUE_MAX 1e150
#define VALUE_MIN 1e-150
#define DECADE_SLACK 1e-9 /* a tick may miss its round value by the rounding of doubles */

struct step_of_unit {
	double least; /* of the largest value shown, for this one to be chosen */
	double scale;
	const char *text;
};

static const struct step_of_unit seconds[] = {{0, 1, "s"}, {240, 1.0 / 60, "min"},
        {4 * 3600.0, 1.0 / 3600, "h"}, {4 * 86400.0, 1.0 / 86400, "days"}};
static const struct step_of_unit bytes[] = {{0, 1, "B"}, {1e3, 1e-3, "kB"}, {1e6, 1e-6, "MB"},
        {1e9, 1e-9, "GB"}, {1e12, 1e-12, "TB"}, {1e15, 1e-15, "PB"}};
static const struct step_of_unit counts[] = {
        {0, 1, ""}, {1e4, 1e-3, "k"}, {1e6, 1e-6, "M"}, {1e9, 1e-9, "G"}, {1e12, 1e-12, "T"}};
static const struct step_of_unit percent[] = {{0, 100, "%"}};
static const struct step_of_unit plain[] = {{0, 1, ""}};

#define STEPS(list)                              \
	{                                        \
		list, sizeof list / sizeof *list \
	}
static const struct {
	const struct step_of_unit *step;
	size_t n;
} units[AXIS_UNITS] = {
        [AXIS_NUMBER] = STEPS(plain),
        [AXIS_COUNT] = STEPS(counts),
        [AXIS_PERCENT] = STEPS(percent),
        [AXIS_BYTES] = STEPS(bytes),
        [AXIS_SECONDS] = STEPS(seconds),
};

static const struct step_of_unit *fit(enum axis_unit unit, double largest)
{
	size_t i = units[unit].n - 1;
	while (i > 0 && largest < units[unit].step[i].least)
		i--;
	return &units[unit].step[i];
}

void axis_init(struct axis *a, enum axis_unit unit, bool log)
{
	*a = (struct axis){.unit = unit, .log = log, .scale = 1, .per = ""};
}

bool axis_shows(const struct axis *a, double v)
{
	return isfinite(v) && (!a->log || v > 0);
}

void axis_add(struct axis *a, double v)
{
	if (!axis_shows(a, v))
		return;
	v = fmin(fmax(v, a->log ? VALUE_MIN : -VALUE_MAX), VALUE_MAX);
	a->low = a->any ? fmin(a->low, v) : v;
	a->high = a->any ? fmax(a->high, v) : v;
	a->any = true;
}

/* The first of 1, 2, 5, 10 times a power of ten that is not below v. */
static double round_up(double v)
{
	double p = pow(10, floor(log10(v)));
	double m = v / p * (1 - DECADE_SLACK);
	return p * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
}

static double round_down(double v)
{
	double p = pow(10, floor(log10(v)));
	double m = v / p * (1 + DECADE_SLACK);
	return p * (m >= 5 ? 5 : m >= 2 ? 2 : 1);
}

static void widen(struct axis *a)
{
	double middle = a->low + (a->high - a->low) / 2;
	double least = fmax(fabs(middle) * 1e-6, VALUE_MIN);
	if (a->high - a->low > least)
		return;
	double by = fabs(middle) < VALUE_MIN ? 1 : fabs(middle) * 0.05;
	a->low = middle - by;
	a->high = middle + by;
}

static void finish_linear(struct axis *a, int ticks)
{
	bool below_one = a->high <= 1, not_negative = a->low >= 0;
	if (a->zero) {
		a->low = fmin(a->low, 0);
		a->high = fmax(a->high, 0);
	}
	widen(a);
	if (not_negative)
		a->low = fmax(a->low, 0);
	const struct step_of_unit *u = fit(a->unit, fmax(fabs(a->low), fabs(a->high)));
	a->scale = u->scale;
	a->per = u->text;
	a->step = round_up((a->high / ticks - a->low / ticks) * a->scale) / a->scale;
	if (!a->tight) {
		a->low = floor(a->low / a->step + DECADE_SLACK) * a->step;
		a->high = ceil(a->high / a->step - DECADE_SLACK) * a->step;
		if (a->unit == AXIS_PERCENT && below_one)
			a->high = fmin(a->high, 1);
	}
	double first = ceil(a->low / a->step - DECADE_SLACK);
	for (int i = 0; i < AXIS_TICKS_MAX; i++) {
		double v = (first + i) * a->step;
		if (v > a->high + a->step * 1e-6)
			break;
		a->tick[a->n_ticks++] = v;
	}
}

static void finish_log(struct axis *a, int ticks)
{
	const double per_decade[] = {1, 2, 5};
	if (a->unit == AXIS_PERCENT || a->unit == AXIS_SECONDS) {
		const struct step_of_unit *u = fit(a->unit, a->high);
		a->scale = u->scale;
		a->per = u->text;
	}
	if (a->high < a->low * 1.01) {
		a->low /= 2;
		a->high *= 2;
	}
	if (!a->tight) {
		a->low = round_down(a->low * a->scale) / a->scale;
		a->high = round_up(a->high * a->scale) / a->scale;
	}
	double first = floor(log10(a->low * a->scale));
	double decades = log10(a->high / a->low);
	int each = decades * 3 <= ticks * 2 ? 3 : 1;
	double stride = each == 3 ? 1 : fmax(1, ceil(decades / ticks));
	for (double d = first; a->n_ticks < AXIS_TICKS_MAX; d += stride) {
		if (pow(10, d) / a->scale > a->high * (1 + DECADE_SLACK))
			break;
		for (int i = 0; i < each && a->n_ticks < AXIS_TICKS_MAX; i++) {
			double v = per_decade[i] * pow(10, d) / a->scale;
			if (v >= a->low * (1 - DECADE_SLACK) && v <= a->high * (1 + DECADE_SLACK))
				a->tick[a->n_ticks++] = v;
		}
	}
}

void axis_finish(struct axis *a, int ticks)
{
	if (ticks < 2)
		ticks = 2;
	if (ticks > AXIS_TICKS_MAX / 2)
		ticks = AXIS_TICKS_MAX / 2;
	if (!a->any) {
		a->low = a->log ? 0.1 : 0;
		a->high = 1;
	}
	if (a->log)
		finish_log(a, ticks);
	else
		finish_linear(a, ticks);
}

double axis_at(const struct axis *a, double v)
{
	double at = a->log ? log(v / a->low) / log(a->high / a->low)
	                   : (v / 2 - a->low / 2) / (a->high / 2 - a->low / 2);
	return fmin(fmax(at, -1), 2);
}

const char *axis_tick_text(const struct axis *a, int i, char out[AXIS_TEXT])
{
	double v = a->tick[i] * a->scale;
	if (a->log) {
		const struct step_of_unit *u = fit(a->unit, a->tick[i] * (1 + DECADE_SLACK));
		bool own = a->unit == AXIS_BYTES || a->unit == AXIS_COUNT;
		snprintf(out, AXIS_TEXT, "%.3g%s%s", own ? a->tick[i] * u->scale : v,
		        a->unit == AXIS_BYTES ? " " : "", own ? u->text : "");
		return out;
	}
	double step = a->step * a->scale;
	int digits = (int)fmax(0, -floor(log10(step) + DECADE_SLACK));
	if (fabs(v) < step * 1e-6)
		v = 0;
	if (digits > 5 || fabs(v) >= 1e6)
		snprintf(out, AXIS_TEXT, "%.4g", v);
	else
		snprintf(out, AXIS_TEXT, "%.*f%s", digits, v,
		        a->unit == AXIS_COUNT && v != 0 ? a->per : "");
	return out;
}

const char *axis_text(enum axis_unit unit, double v, char out[AXIS_TEXT])
{
	if (!isfinite(v)) {
		snprintf(out, AXIS_TEXT, "–");
		return out;
	}
	const struct step_of_unit *u = fit(unit, fabs(v) * (1 + DECADE_SLACK));
	double shown = v * u->scale;
	int digits = fabs(shown) >= 100 ? 0 : fabs(shown) >= 10 ? 1 : 2;
	if (unit == AXIS_NUMBER || fabs(shown) >= 1e6)
		snprintf(out, AXIS_TEXT, "%.4g", shown);
	else if (u->scale == 1 && unit != AXIS_SECONDS)
		snprintf(out, AXIS_TEXT, "%.0f%s%s", shown, *u->text ? " " : "", u->text);
	else
		snprintf(out, AXIS_TEXT, "%.*f %s", unit == AXIS_PERCENT ? 2 : digits, shown,
		        u->text);
	return out;
}
