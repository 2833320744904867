package holder

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"testing"

	"golang.org/x/sys/unix"

	"weft/test/lab"
)

// cli is a variable of the environment that makes the test binary a small weft, which takes the arguments
// run NAME, up NAME, exec NAME HOST COMMAND…, down NAME.
const cli = "WEFT_LAB_TEST_CLI"

func TestMain(m *testing.M) {
	if os.Getenv(cli) == "" {
		os.Exit(m.Run())
	}
	status, err := small(os.Args[1], os.Args[2], os.Args[3:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(status)
}

func small(verb, name string, args []string) (int, error) {
	if is, status, err := Init(); is {
		return status, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	o := Options{Name: name, Spec: lab.Spec{Driver: lab.KernelHostGW, PodsPerNode: 1}}
	switch verb {
	case "run":
		if NeedsIsolation(false) {
			return Isolated()
		}
		o.Work = func(ctx context.Context, _ *lab.Lab) error {
			fmt.Println("up")
			<-ctx.Done()
			return ctx.Err()
		}
		_, err := Hold(ctx, o)
		return 0, err
	case "up":
		if IsHolder() {
			return 0, HoldLaunched(ctx, o)
		}
		info, err := Launch(ctx, name, NeedsIsolation(false), func(string) {})
		if err == nil {
			fmt.Println(info.Nodes[1].Name)
		}
		return 0, err
	case "exec":
		return Exec(Command{Lab: name, Host: args[0], Args: args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr})
	case "down":
		alive, err := Down(name)
		fmt.Println(alive)
		return 0, err
	default:
		return 0, fmt.Errorf("what is %q?", verb)
	}
}
