/* SPDX-License-Identifier: MIT */
/* The page around drawings. Columns as many as fit, one on a phone; tables scroll by themselves.
 *
 * The script works on what is drawn: it reads the points of the lines back from their paths, whose
 * group tells the ranges of both axes. */
#include "agent/report/page.h"

#include "agent/report/plot.h"

#include <string.h>

static const char style[] =
        ":root{color-scheme:light dark;--bg:#f4f6f8;--card:#fff;--ink:#1f2933;--soft:#5f6b76;"
        "--rule:#e3e7eb}"
        "@media(prefers-color-scheme:dark){:root{--bg:#0c1014;--card:#12171d;--ink:#e6eaee;"
        "--soft:#a3aeb9;--rule:#2a333d}}"
        "*{box-sizing:border-box}"
        "body{margin:0;background:var(--bg);color:var(--ink);"
        "font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}"
        "main{max-width:1180px;margin:0 auto;padding:20px 16px 40px}"
        "h1{font-size:24px;line-height:1.25;margin:8px 0 4px;overflow-wrap:anywhere}"
        "h2{font-size:17px;margin:30px 0 10px}"
        "p{margin:6px 0 10px}.soft,footer{color:var(--soft)}"
        ".plots{display:grid;gap:14px;"
        "grid-template-columns:repeat(auto-fit,minmax(min(100%,430px),1fr));align-items:start}"
        ".plots>figure{max-width:640px}"
        "figure,.wide,details{background:var(--card);border:1px solid var(--rule);"
        "border-radius:10px;margin:0}"
        "figure{padding:8px;position:relative}.plot{display:block;width:100%;height:auto}"
        ".wide{overflow-x:auto}.list{max-width:430px;margin-bottom:8px}table{border-collapse:"
        "collapse;width:100%;font-size:14px;"
        "font-variant-numeric:tabular-nums}"
        "th,td{padding:6px 10px;text-align:right;white-space:nowrap;"
        "border-bottom:1px solid var(--rule)}"
        "tr:last-child td{border-bottom:0}th{color:var(--soft);font-weight:600}"
        "th:first-child,td:first-child{text-align:left}"
        "details{padding:10px 14px;margin-bottom:10px}summary{cursor:pointer;font-weight:600;"
        "overflow-wrap:anywhere}"
        "pre{overflow-x:auto;font:13px/1.45 ui-monospace,Menlo,Consolas,monospace;margin:10px 0}"
        ".note{border-left:4px solid #d55e00;padding:4px 12px;margin:0 0 8px;"
        "background:var(--card);overflow-wrap:anywhere}"
        ".tip{position:absolute;pointer-events:none;background:var(--ink);color:var(--bg);"
        "border-radius:6px;padding:3px 8px;font-size:12px;white-space:nowrap;z-index:1}"
        "footer{margin-top:30px;font-size:13px}"
        "@media print{body{background:#fff}figure,details{break-inside:avoid}}";

static const char script[] =
        "document.querySelectorAll('figure').forEach(function(f){"
        "var g=f.querySelector('g.lines');if(!g)return;"
        "var ax=function(s){var p=s.split(' ');return{l:+p[0],h:+p[1],g:p[2]=='1',s:+p[3],"
        "u:p[4]||''}},"
        "X=ax(g.dataset.x),Y=ax(g.dataset.y),A=g.dataset.at.split(' ').map(Number),"
        "svg=g.ownerSVGElement,tip=document.createElement('div'),pts=[];"
        "tip.className='tip';tip.hidden=true;f.appendChild(tip);"
        "g.querySelectorAll('path.l').forEach(function(p){"
        "var n=p.querySelector('title').textContent,x=0,y=0;"
        "(p.getAttribute('d').match(/[MLHV][-0-9. ]+/g)||[]).forEach(function(c){"
        "var v=c.slice(1).trim().split(/ +/).map(Number);"
        "if(c[0]=='H')x=v[0];else if(c[0]=='V')y=v[0];else{x=v[0];y=v[1]}"
        "if(c[0]!='H')pts.push([x,y,n])})});"
        "var val=function(a,t){var v=a.g?a.l*Math.pow(a.h/a.l,t):a.l+(a.h-a.l)*t;"
        "return Number((v*(a.g?1:a.s)).toPrecision(4))+(a.u?' '+a.u:'')};"
        "svg.addEventListener('pointermove',function(e){"
        "var r=svg.getBoundingClientRect(),k=svg.viewBox.baseVal.width/r.width,"
        "x=(e.clientX-r.left)*k,y=(e.clientY-r.top)*k,b=null,d=900;"
        "pts.forEach(function(p){var q=(p[0]-x)*(p[0]-x)+(p[1]-y)*(p[1]-y);if(q<d){d=q;b=p}});"
        "tip.hidden=!b;if(!b)return;"
        "tip.textContent=b[2]+': '+val(Y,(b[1]-A[2])/(A[3]-A[2]))+' at '"
        "+val(X,(b[0]-A[0])/(A[1]-A[0]));"
        "var fr=f.getBoundingClientRect(),l=r.left-fr.left+b[0]/k;"
        "tip.style.top=(r.top-fr.top+b[1]/k-32)+'px';"
        "tip.style.left=Math.max(4,Math.min(l-tip.offsetWidth/2,fr.width-tip.offsetWidth-4))"
        "+'px'});"
        "svg.addEventListener('pointerleave',function(){tip.hidden=true})});";

static void put_all(struct markup *m, const char *text, size_t len)
{
	if (!m->rc)
		m->rc = buf_append(m->buf, text, len);
}

void page_begin(struct markup *m, const char *title, const char *below)
{
	markup_put(m, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
	              "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
	              "<title>");
	markup_text(m, title);
	markup_put(m, "</title>\n<style>");
	put_all(m, style, sizeof style - 1);
	plot_style(m);
	markup_put(m, "</style></head>\n<body><main>\n<h1>");
	markup_text(m, title);
	markup_put(m, "</h1>\n<p class=\"soft\">");
	markup_text(m, below);
	markup_put(m, "</p>\n");
}

void page_section(struct markup *m, const char *title)
{
	markup_put(m, "<h2>");
	markup_text(m, title);
	markup_put(m, "</h2>\n");
}

void page_plots_begin(struct markup *m)
{
	markup_put(m, "<div class=\"plots\">\n");
}

void page_plot_begin(struct markup *m)
{
	markup_put(m, "<figure>");
}

void page_plot_end(struct markup *m)
{
	markup_put(m, "</figure>\n");
}

void page_plots_end(struct markup *m)
{
	markup_put(m, "</div>\n");
}

void page_end(struct markup *m, const char *version)
{
	markup_put(m, "<footer>Written by Dunlin ");
	markup_text(m, version);
	markup_put(m, ".</footer>\n</main>\n<script>");
	put_all(m, script, sizeof script - 1);
	markup_put(m, "</script></body></html>\n");
}

static int fill(int fd, void *arg, struct err *e)
{
	const struct buf *text = arg;
	return file_write_all(fd, text->data, text->len, e);
}

int page_save(const struct buf *text, const char *path, struct err *e)
{
	return file_replace(path, 0644, fill, (void *)(uintptr_t)text, e);
}
