// Package reexec replaces the program of the running weftd, under the same process number.
//
// Exec writes an index into a sealed memory file, clears the close-on-exec flag of what the index names, and
// executes the program. Arrive reads the index in the new program. Until Settle, Back executes the program
// that ran before: its file is inherited as a descriptor, so it may have been replaced on disk.
//
// A program that is no weft cannot go back, and neither can one that the kernel kills. Ask keeps both out as
// far as a program shows it without serving.
package reexec
