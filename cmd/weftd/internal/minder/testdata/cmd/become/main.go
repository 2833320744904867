// Command become is a weftd that has been succeeded, as far as its minder is concerned: it starts a process, and becomes its minder.
//
//	become succeeded SCRIPT NEXT  has the process of NEXT take the place of that of SCRIPT
//	become ended SCRIPT           has a process take its place that has ended already, and been waited for
package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"

	"weft/cmd/weftd/internal/minder"
)

func main() {
	if os.Args[1] == minder.Verb {
		status, err := minder.Wait(os.Args[2:])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(status)
	}
	r, w, err := os.Pipe()
	must(err)
	pid := start(os.Args[2], w)
	switch os.Args[1] {
	case "succeeded":
		_, err := fmt.Fprintln(w, start(os.Args[3], w))
		must(err)
	case "ended":
		gone := exec.Command("false")
		if gone.Run() == nil {
			panic("it was to fail")
		}
		_, err := fmt.Fprintln(w, gone.Process.Pid)
		must(err)
	}
	must(minder.Become(pid, r, func() bool { return false }))
}

// start runs a script in a shell, which says a line when it has begun and holds the pipe open.
func start(script string, w *os.File) (pid int) {
	cmd := exec.Command("sh", "-c", script)
	cmd.ExtraFiles = []*os.File{w}
	out, err := cmd.StdoutPipe()
	must(err)
	must(cmd.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	must(err)
	return cmd.Process.Pid
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
