// Package doctor looks for faults of this host, and on the way to each peer, and says for each its likely
// cause and its remedy.
//
// Gather reads what can be read without changing anything, within a bounded time, and returns Facts. The
// checks are pure functions over Facts, each with an id that stays (Checks). A check that could not look says
// so, and why, with the verdict Unknown: it never guesses. weft doctor prints all of them, and weftd --check
// uses the same ones.
package doctor
