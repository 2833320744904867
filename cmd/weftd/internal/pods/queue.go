package pods

import (
	"time"

	"weft/cmd/internal/events"
	"weft/cmd/internal/podport"
)

// A pod with CAP_NET_ADMIN makes the queue of its interface as long as it likes, and nothing else bounds the
// memory that its packets hold in the host while weftd does not read them.
const (
	// watchEvery is how often the lengths are looked at: a pod fills some hundred MB in that time.
	watchEvery = time.Second
	// sayLongEvery bounds the lines about one pod, which may lengthen its queue again at once.
	sayLongEvery = 10 * time.Minute
)

// shorten gives interfaces whose queue is too long podport.QueueLen again, and with that the kernel drops
// what is too much. It returns when to look again.
func (s *Set) shorten(now time.Time) time.Duration {
	s.serial.Lock()
	defer s.serial.Unlock()
	s.mu.Lock()
	var watched []*pod
	for _, p := range s.pods {
		if p.queue >= 0 {
			watched = append(watched, p)
		}
	}
	s.mu.Unlock()
	for _, p := range watched {
		length, err := podport.ReadSetting(p.queue)
		if err != nil || length <= podport.QueueLen { // its device may be gone
			continue
		}
		err = podport.WriteSetting(p.queue, podport.QueueLen)
		if p.lengthened++; now.Sub(p.saidLong) < sayLongEvery {
			continue
		}
		log := s.o.Logger.With("event", events.PodQueue, "pod", p.Key.String(), "name", p.label(), "length", length,
			"most", podport.QueueLen, "times", p.lengthened)
		if p.lengthened, p.saidLong = 0, now; err != nil {
			log.Warn("pod's queue is too long, and stays so: what the pod sends while weftd is away may fill the "+
				"host's memory", "reason", err)
			continue
		}
		log.Warn("pod's queue was too long, and has weftd's own length again: its packets take the host's memory")
	}
	if len(watched) == 0 {
		return patience
	}
	return watchEvery
}
