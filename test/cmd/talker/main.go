// Command talker is what runs in the namespaces of ordinary users in tests, and in their containers: it
// answers others of its kind, and does what its standard input tells it to. Each line there is a Request, and
// gets a Reply on standard output. It ends with its input. It is one static file, so that it can be the whole
// root file system of a container.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"weft/test/talk"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "talker:", err)
		os.Exit(1)
	}
}

func run() error {
	if err := talk.Listen(); err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(talk.Identity{PID: os.Getpid()}); err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil // whoever told us what to do has gone
		}
		var r talk.Request
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		if err := out.Encode(r.Do()); err != nil {
			return err
		}
	}
}
