package holder

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"testing"

	"golang.org/x/sys/unix"

	"weft/test/lab"
	"weft/test/lab/netns"
)

// cli is a variable of the environment that makes the test binary a small weft, which takes the arguments
// run NAME, up NAME, claim NAME, lab exec --lab NAME HOST -- COMMAND…, down NAME.
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
	case "lab": // as Exec starts it inside of a user namespace
		return Exec(args[1], args[2], args[4:])
	case "claim": // is alive until it is asked to end, and then says that a process is left
		c, err := claimName(name)
		if err != nil {
			return 0, err
		}
		fmt.Println("claimed")
		<-ctx.Done()
		err = c.leave([]netns.Process{{PID: 7, Name: "weftd"}})
		c.release(true)
		return 0, err
	case "down":
		alive, err := Down(name)
		fmt.Println(alive)
		return 0, err
	default:
		return 0, fmt.Errorf("what is %q?", verb)
	}
}
