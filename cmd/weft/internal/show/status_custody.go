package show

import (
	"fmt"

	"weft/cmd/internal/control"
	"weft/cmd/internal/custody"
)

// custodyRows says who keeps descriptors for the next weftd, and nothing while there are none.
func custodyRows(row func(name, format string, a ...any), k *control.Custody) {
	if k == nil {
		return
	}
	who := "nobody"
	switch k.By {
	case custody.ByHolder:
		who = fmt.Sprintf("a holder, pid %d", k.PID)
	case custody.ByManager:
		who = "the service manager"
	}
	line := fmt.Sprintf("%d descriptors of %d pods, kept by %s for the next weftd", k.Descriptors, k.Items, who)
	switch {
	case k.Ports > 0 && k.Items == 0:
		line = fmt.Sprintf("%d descriptors of weftd's own ports, kept by %s for the next weftd",
			k.PortDescriptors, who)
	case k.Ports > 0:
		line = fmt.Sprintf("%d descriptors of %d pods and %d of weftd's own ports, kept by %s for the next weftd",
			k.Descriptors, k.Items, k.PortDescriptors, who)
	}
	if k.Discarded > 0 {
		line += fmt.Sprintf("; %d packets were too old when they were taken up", k.Discarded)
	}
	row("custody", "%s", line)
	if k.Fault != "" {
		row("", "%s", k.Fault)
	}
}
