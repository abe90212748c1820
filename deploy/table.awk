# SPDX-License-Identifier: MIT
# The table of a run, from the last line of each agent in the log of `dunlin top`.
#
#     awk -F'\t' -f deploy/table.awk FATES top.tsv
#
# FATES has a line for each agent: its name, how it ended, and the accuracies of its local and of
# the merged model in percent, if the agent printed them at its end (else - or nothing). They may
# be newer than its last line in the log.

function percent(x) { return x == "-" || x == "" ? "-" : sprintf("%.2f %%", 100 * x) }
function bytes(n) {
	return n >= 1e9 ? sprintf("%.2f GB", n / 1e9) : sprintf("%.1f MB", n / 1e6)
}
function final(which) {
	return at_end[name, which] + 0 > 0 ? sprintf("%.2f %%", at_end[name, which]) \
		: percent(last[name, which "_accuracy"])
}
function number(column) { return last[name, column] == "-" ? 0 : last[name, column] + 0 }

NR == FNR {
	agent[++n] = $1
	fate[$1] = $2
	at_end[$1, "local"] = $3
	at_end[$1, "merged"] = $4
	next
}
FNR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
{
	for (column in at) {
		# A value that is missing later stays as it was.
		if ($(at[column]) != "-" || !(($2, column) in last))
			last[$2, column] = $(at[column])
	}
}

END {
	line = "%-7s  %-9s  %9s  %9s  %9s  %10s  %10s  %9s  %10s\n"
	printf line, "agent", "", "local", "merged", "samples", "exchanges", "steps", "sent", \
		"saved"
	printf line, "", "", "model", "model", "trained", "made", "spared one", "", ""
	for (i = 1; i <= n; i++) {
		name = agent[i]
		if (!((name, "step") in last)) {
			print "table.awk: no agent " name " in the log" >"/dev/stderr"
			exit 1
		}
		local = final("local")
		whole = local != "-"
		accuracy = whole ? local : percent(last[name, "accuracy"])
		some = some || (!whole && accuracy != "-")
		sent = number("bytes_sent") + number("net_bytes_sent")
		printf line, name, fate[name], accuracy (whole || accuracy == "-" ? "" : "*"), \
			final("merged"), number("samples"), \
			number("begun") + number("taken"), number("local_steps"), bytes(sent), \
			bytes(number("saved_bytes"))
		all_samples += number("samples")
		all_sent += sent
		all_saved += number("saved_bytes")
	}
	printf line, "all", "", "", "", all_samples, "", "", bytes(all_sent), bytes(all_saved)
	if (some) print "* its last evaluation, on a part of the test images; the others are on all"
	printf "saved: what an exchange after each of the spared steps would have sent"
	if (all_sent > 0) printf "; in all %.0f times what was sent", all_saved / all_sent
	print ""
}
