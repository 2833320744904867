// Package ops has the daemon's interfaces to monitoring and to systemd: /healthz,
// /readyz and /metrics over HTTP, and systemd's notifications.
//
//	/healthz  200 "flanneld is running" as long as the process answers
//	/readyz   200 "flanneld is ready" when the node carries traffic and its lease is
//	          safe, else 503 "flanneld is not ready yet" and below it one reason a line
//	/metrics  Prometheus text, read from the counters at the moment of the request
package ops
