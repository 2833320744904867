// Package table decides what is to be changed in a cloud's route table, and what became of the routes that
// are wanted: pure functions over what a table has and what it should have. What it knows of clouds is that
// they have routes of others beside ours, that a table can be full, that they ask callers to slow down, and
// that a change may be made although its answer was lost, and be shown late. So the verdict about a route is
// what a later read of the table shows, and what a call answered is only the reason if the route is not
// there.
//
//	have, want ─Make─> Plan ─Apply─> calls;  have once more ─Judge─> verdicts
package table
