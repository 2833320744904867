package handover

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// FaultVariable names a step at which this process dies or stands still, for tests: crash:STEP, hang:STEP, or Wait.
const FaultVariable = "WEFT_TEST_HANDOVER"

// Steps are the places in the order in which they are passed: those of the new one, then those of the old one.
func Steps() []string {
	return []string{
		"new-asked", "new-given", "new-prepared", "new-ready", "new-yours", "new-reads", "new-flowing", "new-alone",
		"old-asked", "old-given", "old-ready", "old-paused", "old-yours", "old-flowing", "old-bye",
	}
}

// At says that a process is at a step.
func At(step string) {
	what, where, _ := strings.Cut(os.Getenv(FaultVariable), ":")
	if where != step {
		return
	}
	switch what {
	case "crash":
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		time.Sleep(time.Hour) // the signal takes a moment, in which this step is not passed
	case "hang":
		_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
		time.Sleep(stopTime) // likewise; SIGCONT lets it go on
	}
}

// Trial is d, and ten times that while a test has somebody die: what is killed takes a while to end where the machine is busy.
func Trial(d time.Duration) time.Duration {
	if os.Getenv(FaultVariable) != "" {
		return 10 * d
	}
	return d
}

// Flow is d, and ten times that with the value wait of FaultVariable, by which a test has an old one wait for a new one that stands still, for as long
// as it takes to ask the old one to stop where the machine is busy.
func Flow(d time.Duration) time.Duration {
	if os.Getenv(FaultVariable) == Wait {
		return 10 * d
	}
	return d
}

// Wait is for Flow.
const Wait = "wait"

// stopTime is how long a signal may take that stops this process.
const stopTime = 100 * time.Millisecond
