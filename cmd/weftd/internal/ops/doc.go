// Package ops is what an operator's machinery sees of the daemon: /healthz,
// /readyz and /metrics over HTTP, and what systemd is told.
//
//	/healthz  200 "flanneld is running" as long as the process answers
//	/readyz   200 "flanneld is ready" when the node carries traffic and its lease is
//	          safe, else 503 "flanneld is not ready yet" and below it one reason a line
//	/metrics  Prometheus text, read from the counters at the moment of the request
package ops
