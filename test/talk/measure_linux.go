package talk

import (
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"
)

func (m Measure) do() (float64, error) {
	switch {
	case m.Streams > 0:
		return m.streams()
	case m.Packet > 0:
		return m.packets()
	case m.PingPong > 0:
		return m.pingPong()
	}
	return 0, errors.New("nothing is to be measured")
}

// streams returns the bits a second that arrived in all connections together.
func (m Measure) streams() (float64, error) {
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		total  float64
		faults []error
	)
	for range m.Streams {
		wg.Go(func() {
			rate, err := m.stream()
			mu.Lock()
			defer mu.Unlock()
			total += rate
			faults = append(faults, err)
		})
	}
	wg.Wait()
	return total, errors.Join(faults...)
}

func (m Measure) stream() (float64, error) {
	c, err := net.DialTimeout("tcp", at(m.To, sinkPort), patience)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	b := make([]byte, 256<<10)
	start := time.Now()
	_ = c.SetDeadline(start.Add(m.Duration + 4*patience))
	for time.Since(start) < m.Duration {
		if _, err := c.Write(b); err != nil {
			return 0, err
		}
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return 0, err
	}
	var total uint64
	if err := binary.Read(c, binary.BigEndian, &total); err != nil {
		return 0, err
	}
	return float64(total) * 8 / time.Since(start).Seconds(), nil
}

// packets returns how many datagrams a second arrived of as many as this process could send.
func (m Measure) packets() (float64, error) {
	c, err := net.Dial("udp", at(m.To, sinkPort))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if _, err := arrivals(c); err != nil {
		return 0, err
	}
	b := make([]byte, m.Packet)
	start := time.Now()
	for time.Since(start) < m.Duration {
		for range 16 {
			_, _ = c.Write(b) // one that the kernel had no room for has not arrived
		}
	}
	spent := time.Since(start)
	n, err := arrivals(c)
	return float64(n) / spent.Seconds(), err
}

// arrivals asks the other end how many datagrams have come.
func arrivals(c net.Conn) (n int64, err error) {
	b := make([]byte, 32)
	err = until(time.Time{}, func() error {
		time.Sleep(100 * time.Millisecond) // so that what is queued on the way comes first
		_ = c.SetDeadline(time.Now().Add(time.Second))
		if _, err := c.Write(nil); err != nil {
			return err
		}
		got, err := c.Read(b)
		if err == nil {
			n, err = strconv.ParseInt(string(b[:got]), 10, 64)
		}
		return err
	})
	return n, err
}

// pingPong returns the median time of a round trip, in seconds.
func (m Measure) pingPong() (float64, error) {
	c, err := net.Dial("udp", at(m.To, echoPort))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	b := make([]byte, m.PingPong)
	var trips []time.Duration
	for start := time.Now(); time.Since(start) < m.Duration; {
		begin := time.Now()
		_ = c.SetDeadline(begin.Add(time.Second))
		if _, err := c.Write(b); err != nil {
			return 0, err
		}
		if _, err := c.Read(b); err == nil {
			trips = append(trips, time.Since(begin))
		}
	}
	if len(trips) == 0 {
		return 0, errors.New("no answer came")
	}
	slices.Sort(trips)
	return trips[len(trips)/2].Seconds(), nil
}
