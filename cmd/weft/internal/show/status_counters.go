package show

import (
	"fmt"
	"io"
	"strings"

	"weft/cmd/internal/control"
	"weft/cmd/weft/internal/cli"
)

func printCounters(w io.Writer, c control.Counters) error {
	t := cli.NewList(w, "packets", "received", "delivered", "dropped", "")
	for _, f := range []struct {
		name string
		flow control.Flow
	}{{"to peers", c.Egress}, {"from peers", c.Ingress}} {
		t.Row(f.name, cli.Packets(f.flow.Received, f.flow.ReceivedBytes),
			cli.Packets(f.flow.Delivered, f.flow.DeliveredBytes), cli.Total(f.flow.Drops),
			reasons(f.flow.Drops))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := printOffloads(w, c.Offloads); err != nil {
		return err
	}
	if c.SocketOverflow+c.DeviceDropped > 0 {
		fmt.Fprintf(w, "lost in the kernel, whose queues were full: socket %d, device %d\n", c.SocketOverflow,
			c.DeviceDropped)
	}
	if c.HeldBack > 0 {
		fmt.Fprintf(w, "held back: %d of the peers, whose packets filled the queue that others share (the log "+
			"names them)\n", c.HeldBack)
	}
	return nil
}

// printDevices shows what the kernel counted where it moves the packets.
func printDevices(w io.Writer, l []control.DeviceCounters) error {
	if len(l) == 0 {
		_, err := fmt.Fprintf(w, "\nweftd itself moves no packets with this backend: ip -s link counts them\n")
		return err
	}
	t := cli.NewList(w, "the kernel's counts", "sent", "received", "dropped out/in", "errors out/in", "")
	for _, d := range l {
		whose := "all peers together"
		if !d.Overlay {
			whose = "with all else that this host sends there"
		}
		t.Row(d.Name, cli.Packets(d.TxPackets, d.TxBytes), cli.Packets(d.RxPackets, d.RxBytes),
			fmt.Sprintf("%d/%d", d.TxDropped, d.RxDropped), fmt.Sprintf("%d/%d", d.TxErrors, d.RxErrors),
			whose)
	}
	return t.Flush()
}

// printOffloads shows what the kernel does for many packets at once, and for how many.
func printOffloads(w io.Writer, l []control.Offload) error {
	t := cli.NewList(w, "offload", "state", "calls", "packets a call")
	for _, o := range l {
		each := "-"
		if o.Calls > 0 {
			each = fmt.Sprintf("%.1f", float64(o.Packets)/float64(o.Calls))
		}
		t.Row(o.Name, o.State, o.Calls, each)
	}
	return t.Flush()
}

// reasons prints drops as "no_route 3, ttl 1".
func reasons(drops []control.Drop) string {
	var out []string
	for _, d := range drops {
		out = append(out, fmt.Sprintf("%s %d", d.Reason, d.Packets))
	}
	return strings.Join(out, ", ")
}
