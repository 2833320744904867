package wireguard

import (
	"sync"

	"golang.zx2c4.com/wireguard/tun"
)

// tunDevice is the library's TUN but for what that would ask the namespace of whoever calls: the MTU, by
// which the device limits padding.
type tunDevice struct {
	tun.Device
	events chan tun.Event

	mu   sync.Mutex // guards what follows, and sending to events
	mtu  int
	shut bool
}

// newTUN makes a device of fd, which is the library's from then on, also beside an error.
func newTUN(fd, mtu int) (*tunDevice, error) {
	d, _, err := tun.CreateUnmonitoredTUNFromFD(fd)
	if err != nil {
		return nil, err
	}
	return &tunDevice{Device: d, events: make(chan tun.Event, 1), mtu: mtu}, nil
}

// MTU implements tun.Device.
func (t *tunDevice) MTU() (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mtu, nil
}

func (t *tunDevice) setMTU(mtu int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mtu == mtu || t.shut {
		return
	}
	t.mtu = mtu
	select {
	case t.events <- tun.EventMTUUpdate:
	default: // one that is not read yet says the same
	}
}

// Events implements tun.Device.
func (t *tunDevice) Events() <-chan tun.Event { return t.events }

// Close implements tun.Device.
func (t *tunDevice) Close() error {
	t.mu.Lock()
	if !t.shut {
		close(t.events)
	}
	t.shut = true
	t.mu.Unlock()
	return t.Device.Close()
}
