package routing

import (
	"errors"
	"testing"
	"time"

	"weft/routing/internal/wireguard"
	"weft/test/await"
)

// hanging is a device that answers when it may.
type hanging struct {
	wireGuardEnd
	began  chan struct{} // takes one for each question
	answer chan error
}

func (h hanging) Peers() ([]wireguard.PeerState, error) {
	h.began <- struct{}{}
	err := <-h.answer
	return []wireguard.PeerState{{Key: wireguard.PublicKey{1}}}, err
}

func (hanging) WrongKeys() uint64 { return 3 }

// TestADeviceThatHangsKeepsNobodyWaiting: who asks has what the device said last, and when, and it is asked once however many want to know.
func TestADeviceThatHangsKeepsNobodyWaiting(t *testing.T) {
	h := hanging{began: make(chan struct{}, 10), answer: make(chan error, 10)}
	ends := map[string]wireGuardEnd{"wg": h}
	q := newAskedDevices(func() map[string]wireGuardEnd { return ends })
	if all, err := q.within(0); len(all) != 0 || err != nil {
		t.Errorf("before the first answer: %v, %v", all, err)
	}
	h.answer <- nil
	var first deviceAnswer
	await.True(t, "the first answer", func() bool {
		all, err := q.known()
		first = all["wg"]
		return err == nil && len(first.peers) == 1
	})
	q.wg.Wait()
	<-h.began
	if p := first.peers[0]; p.Device != "wg" || !p.Asked.Equal(first.asked) || first.asked.IsZero() || first.wrongKeys != 3 {
		t.Errorf("%+v", first)
	}
	said := make(chan map[string]deviceAnswer)
	go func() {
		for range 3 {
			all, _ := q.within(time.Millisecond) // it hangs, which is no error yet
			said <- all
		}
	}()
	for range 3 {
		select {
		case all := <-said:
			if a := all["wg"]; len(a.peers) != 1 || !a.asked.Equal(first.asked) {
				t.Errorf("while it hangs: %+v", a)
			}
		case <-time.After(await.Patience):
			t.Fatal("who asks waits for a device that hangs")
		}
	}
	<-h.began
	h.answer <- nil
	q.wg.Wait()
	if len(h.began) > 0 {
		t.Error("it was asked more than once")
	}
	mute := errors.New("mute")
	h.answer <- mute
	if all, err := q.within(await.Patience); !errors.Is(err, mute) || len(all["wg"].peers) != 1 || !all["wg"].asked.After(first.asked) {
		t.Errorf("one that failed: %v, %v", all, err)
	}
	ends = nil
	if all, err := q.within(await.Patience); len(all) > 0 || err != nil {
		t.Errorf("of a device that is gone: %v, %v", all, err)
	}
	q.close()
	if _, err := q.within(0); err != nil {
		t.Error(err)
	}
}
