package kernel

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// An answer that comes late is entered, and does not stand for one of the batch that is waited for.
func TestLateAnswersAreNoneOfTheNextBatch(t *testing.T) {
	answers := make([]Answer, 2*askBatch)
	var messages []syscall.NetlinkMessage
	for _, seq := range []uint32{askBatch - 1, askBatch, 2 * askBatch, askBatch + 1} {
		messages = append(messages, syscall.NetlinkMessage{
			Header: syscall.NlMsghdr{Type: unix.RTM_NEWROUTE, Seq: seq},
			Data:   append(make([]byte, 7), RouteUnicast, 0, 0, 0, 0),
		})
	}
	if n := takeAnswers(answers, messages, askBatch, 2*askBatch); n != 2 {
		t.Errorf("%d answer the second batch, want 2", n)
	}
	for seq, a := range answers {
		if want := seq >= askBatch-1 && seq <= askBatch+1; (a.Kind == RouteUnicast) != want {
			t.Errorf("answer %d: %+v", seq, a)
		}
	}
}
