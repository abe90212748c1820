# SPDX-License-Identifier: MIT
# A line plot (SVG) of a column of `dunlin top --log` over time, one line for each agent.
#
#     awk -f deploy/plot.awk -v y=loss -v title='training loss' [-v events=FILE] top.tsv >loss.svg
#
# y may be a sum (bytes_sent+net_bytes_sent), which is multiplied by scale. Only lines of
# agents that are up are drawn. A file of events has lines with a time, a tab and a text: each is
# drawn as a vertical line.

BEGIN {
	FS = "\t"
	if (!scale) scale = 1
	n_terms = split(y, term, "+")
	n_colours = split("#0072b2 #d55e00 #009e73 #cc79a7 #e69f00 #56b4e9 #000000", colour, " ")
	left = 70; right = 690; top = 50; bottom = 400
	low = 0; high = 0; first = -1; last = 0
}

function fail(why) {
	failed = 1
	print "plot.awk: " why >"/dev/stderr"
	exit 1
}

FNR == 1 {
	for (i = 1; i <= NF; i++) column[$i] = i
	for (i = 1; i <= n_terms; i++)
		if (!(term[i] in column)) fail("there is no column " term[i])
	next
}

{
	if (first < 0 || $1 < first) first = $1 + 0
	if ($1 > last) last = $1 + 0
	if ($(column["state"]) != "up") next
	value = 0
	for (i = 1; i <= n_terms; i++) {
		if ($(column[term[i]]) == "-") next
		value += $(column[term[i]])
	}
	value *= scale
	name = $2
	if (!(name in points)) agent[++n_agents] = name
	k = ++points[name]
	at[name, k] = $1 + 0
	height[name, k] = value
	if (value > high) high = value
}

function escaped(s) {
	gsub(/[\001-\037]/, " ", s)
	gsub(/&/, "\\&amp;", s)
	gsub(/</, "\\&lt;", s)
	gsub(/>/, "\\&gt;", s)
	gsub(/"/, "\\&quot;", s)
	return s
}

# The distance between about five ticks: 1, 2 or 5 times a power of ten.
function tick(range,  raw, p) {
	raw = range / 5
	p = 1
	while (p * 10 <= raw) p *= 10
	while (p > raw) p /= 10
	return raw / p < 2 ? p * 2 : raw / p < 5 ? p * 5 : p * 10
}

function px(t) { return left + (right - left) * (t - first) / (last - first) }
function py(v) { return bottom - (bottom - top) * v / high }
function text(x, y, anchor, s, more) {
	printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>%s</text>\n", x, y, anchor, more, \
		escaped(s)
}
function rule(x1, y1, x2, y2, stroke) {
	printf "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", \
		x1, y1, x2, y2, stroke
}

function axes(  step, v, i) {
	step = tick(high)
	for (i = 0; i * step <= high; i++) {
		v = i * step
		rule(left, py(v), right, py(v), "stroke=\"#ddd\"")
		text(left - 8, py(v) + 4, "end", sprintf("%g", v), "")
	}
	step = tick(last - first)
	for (i = 0; i * step <= last - first; i++) {
		v = px(first + i * step)
		rule(v, bottom, v, bottom + 5, "stroke=\"#333\"")
		text(v, bottom + 20, "middle", sprintf("%g", i * step), "")
	}
	rule(left, bottom, right, bottom, "stroke=\"#333\"")
	text((left + right) / 2, bottom + 40, "middle", "seconds", "")
}

function draw_events(  line, part, x) {
	if (!events) return
	while ((getline line <events) > 0) {
		if (split(line, part, "\t") < 2 || part[1] < first || part[1] > last) continue
		x = px(part[1])
		rule(x, top, x, bottom, "stroke=\"#999\" stroke-dasharray=\"4 3\"")
		text(x - 4, top + 4, "end", part[2], \
			sprintf(" fill=\"#666\" transform=\"rotate(-90 %.1f %.1f)\"", \
				x - 4, top + 4))
	}
}

END {
	if (failed) exit 1
	if (!n_agents) fail("nothing to draw")
	if (last <= first) last = first + 1
	if (high <= 0) high = 1
	high *= 1.05
	print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"820\" height=\"460\"" \
		" viewBox=\"0 0 820 460\" font-family=\"sans-serif\" font-size=\"13\">"
	print "<rect width=\"820\" height=\"460\" fill=\"white\"/>"
	text(left, 28, "start", title, " font-size=\"17\"")
	axes()
	draw_events()
	for (i = 1; i <= n_agents; i++) {
		c = colour[(i - 1) % n_colours + 1]
		printf "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.8\" points=\"", c
		for (k = 1; k <= points[agent[i]]; k++)
			printf "%s%.1f,%.1f", (k > 1 ? " " : ""), px(at[agent[i], k]), \
				py(height[agent[i], k])
		print "\"/>"
		rule(right + 12, top + 22 * i - 4, right + 36, top + 22 * i - 4, \
			"stroke=\"" c "\" stroke-width=\"3\"")
		text(right + 42, top + 22 * i, "start", agent[i], "")
	}
	print "</svg>"
}
