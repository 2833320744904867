// Package routehook speaks to a controller that programs routes somewhere else than on the hosts: in
// switches, a router, a cloud's route table. A node gives it a View, all routes that the node knows of, by
// one idempotent PUT, and is answered with a Verdict for each route. The protocol is written down in
// docs/route-hook.openapi.json.
//
// A View is complete, so that a controller never has to be told what to remove. It belongs to one node, and
// only that node writes it: each PUT says by its condition (RFC 9110, section 13.1) which representation it
// replaces, so that a request that was given up and arrives late changes nothing.
package routehook
