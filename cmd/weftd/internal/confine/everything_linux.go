package confine

import (
	"errors"
	"fmt"
)

// Everything gives up, for the rest of this process's life, all that a process has no need of which works with the descriptors that it has: all
// capabilities, new ones by execve(2), files that are not open yet unless files says so, and system calls that lead to other programs, processes,
// sockets and namespaces, or change a file by its name. It tries all of it. lacks says what could not be given up and should have been, "" for
// nothing; that a program with C code keeps capabilities (ErrThreads) is none of it, as for weftd itself.
func Everything(files bool) (lacks string) {
	var faults []error
	note := func(what string, err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", what, err))
		}
	}
	if !files {
		_, err := confineFiles(nil, func(abi int) uint64 { return writingWithin(abi) | reading })
		note("files", err)
	}
	if _, err := Drop(nil); !errors.Is(err, ErrThreads) {
		note("capabilities", err)
	}
	note("system calls", Calls(files)) // last: what comes before may take one of them
	if len(faults) == 0 {
		return ""
	}
	return errors.Join(faults...).Error()
}
