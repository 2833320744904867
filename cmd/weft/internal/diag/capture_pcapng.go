package diag

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"weft/cmd/internal/control"
)

// capturePcapng writes a capture in the format of Wireshark (draft-ietf-opsawg-pcapng), packet by packet, so
// that the file is whole whenever weft ends. There is one interface, since libpcap, and so tcpdump, refuses
// several of the type LINKTYPE_RAW.
func capturePcapng(w io.Writer, r control.CaptureRequest) (func(control.Captured) error, error) {
	out, err := pcapgo.NewNgWriterInterface(w, pcapgo.NgInterface{
		Name: "weft", Description: captureText(r), Filter: r.Filter,
		LinkType: layers.LinkTypeRaw, SnapLength: uint32(r.SnapLen),
		TimestampResolution: 9, // powers of ten
	}, pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "weft"}})
	if err != nil {
		return nil, err
	}
	var at time.Time // of the last packet
	return func(c control.Captured) error {
		var err error
		if p := c.Packet; p != nil {
			at = p.Time
			flags := &pcapgo.NgEpbFlags{Direction: pcapgo.NgEpbFlagDirectionInbound}
			if p.Outbound {
				flags.Direction = pcapgo.NgEpbFlagDirectionOutbound
			}
			info := gopacket.CaptureInfo{Timestamp: p.Time, CaptureLength: len(p.Data), Length: p.Length}
			options := pcapgo.NgPacketOptions{Comments: captureComments(p), Flags: flags}
			err = out.WritePacketWithOptions(info, p.Data, options)
		} else if !at.IsZero() {
			err = out.WriteInterfaceStats(0, pcapgo.NgInterfaceStatistics{
				LastUpdate: at, PacketsReceived: c.Received, PacketsDropped: c.Missed,
			})
		}
		if err == nil {
			err = out.Flush()
		}
		return err
	}, nil
}

// captureText says what is in a capture.
func captureText(r control.CaptureRequest) string {
	var l []string
	none := !r.Inner && !r.Outer && !r.Dropped // weftd's choice is then the first two
	for _, k := range []struct {
		asked bool
		text  string
	}{
		{r.Inner || none, "inner packets"}, {r.Dropped || none, "dropped packets"},
		{r.Outer, "datagrams on the underlay"},
	} {
		if k.asked {
			l = append(l, k.text)
		}
	}
	s := strings.Join(l, ", ")
	if r.Peer != "" {
		s += " of " + r.Peer
	}
	return s
}

// captureComments says in words what weftd knows of a packet.
func captureComments(p *control.CapturedPacket) (l []string) {
	if p.Dropped != "" {
		s := "dropped: " + p.Dropped
		if p.Admit != "" {
			s += "; would be admitted by " + p.Admit
		}
		l = append(l, s)
	}
	if p.Address.IsValid() {
		way := "from"
		if p.Outbound {
			way = "to"
		}
		l = append(l, strings.TrimSpace(fmt.Sprintf("%s %s", way, p.Peer))+" ("+p.Address.String()+")")
	}
	if p.Segments > 0 {
		l = append(l, fmt.Sprintf("superpacket: %d packets of up to %d bytes of payload", p.Segments,
			p.SegmentSize))
	}
	return l
}
