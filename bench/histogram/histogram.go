// Package histogram counts durations in buckets whose width grows with the value, as
// HdrHistogram does. There are 32 buckets to a doubling, so that every duration from a nanosecond to
// centuries is known to within 3.2 %. A histogram takes 15 KiB, however many durations it counts.
package histogram

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"
)

const (
	subBits = 5
	sub     = 1 << subBits // buckets to a doubling
	// A duration has at most 63 bits. Each below sub has a bucket of its own; every further bit takes sub buckets.
	size = sub * (63 - subBits + 1)
)

// Histogram is for one goroutine at a time. The zero Histogram is empty and ready.
type Histogram struct {
	counts   [size]uint64
	total    uint64
	min, max time.Duration
}

// Bucket is a bucket that is not empty: it has Count durations of more than Above and up to UpTo.
type Bucket struct {
	Above, UpTo time.Duration
	Count       uint64
}

// bucket is the index for d, which is not negative.
func bucket(d time.Duration) int {
	if d < sub {
		return int(d)
	}
	shift := bits.Len64(uint64(d)) - subBits - 1
	return sub*shift + int(d>>shift)
}

// upTo is the largest duration of a bucket.
func upTo(i int) time.Duration {
	if i < 2*sub {
		return time.Duration(i)
	}
	shift := i/sub - 1
	return time.Duration(uint64(i-sub*shift+1)<<shift - 1)
}

// Record counts one duration. A negative one counts as 0.
func (h *Histogram) Record(d time.Duration) {
	d = max(d, 0)
	h.counts[bucket(d)]++
	if h.total == 0 || d < h.min {
		h.min = d
	}
	h.max = max(h.max, d)
	h.total++
}

// Merge adds the durations that o counted.
func (h *Histogram) Merge(o *Histogram) {
	if o.total == 0 {
		return
	}
	for i, n := range o.counts {
		h.counts[i] += n
	}
	if h.total == 0 || o.min < h.min {
		h.min = o.min
	}
	h.max = max(h.max, o.max)
	h.total += o.total
}

// Count is how many durations were recorded; Min and Max are exact, and 0 if there are none.
func (h *Histogram) Count() uint64      { return h.total }
func (h *Histogram) Min() time.Duration { return h.min }
func (h *Histogram) Max() time.Duration { return h.max }

// Quantile returns a duration that the share q (0 to 1) of them does not exceed: the upper end of the bucket
// in which that share is reached, but no more than the largest duration recorded. It is 0 if there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := max(uint64(math.Ceil(q*float64(h.total))), 1)
	var seen uint64
	for i, n := range h.counts {
		if seen += n; n > 0 && seen >= rank {
			return min(upTo(i), h.max)
		}
	}
	return h.max
}

// Buckets returns the buckets that are not empty, in order.
func (h *Histogram) Buckets() (l []Bucket) {
	for i, n := range h.counts {
		if n > 0 {
			l = append(l, Bucket{upTo(i - 1), upTo(i), n})
		}
	}
	return l
}

// document is the JSON form: two lists of the same length, of buckets that are not empty.
type document struct {
	Count  uint64   `json:"count"`
	Min    int64    `json:"min_nanoseconds"`
	Max    int64    `json:"max_nanoseconds"`
	UpTo   []int64  `json:"bucket_up_to_nanoseconds"`
	Counts []uint64 `json:"bucket_counts"`
}

// MarshalJSON writes what UnmarshalJSON reads.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	d := document{Count: h.total, Min: int64(h.min), Max: int64(h.max), UpTo: []int64{}, Counts: []uint64{}}
	for _, b := range h.Buckets() {
		d.UpTo, d.Counts = append(d.UpTo, int64(b.UpTo)), append(d.Counts, b.Count)
	}
	return json.Marshal(d)
}

// UnmarshalJSON refuses a document that no Histogram could have written.
func (h *Histogram) UnmarshalJSON(b []byte) error {
	var d document
	if err := json.Unmarshal(b, &d); err != nil {
		return fmt.Errorf("histogram: %w", err)
	}
	if len(d.UpTo) != len(d.Counts) {
		return fmt.Errorf("histogram: %d bounds for %d counts", len(d.UpTo), len(d.Counts))
	}
	*h = Histogram{total: d.Count, min: time.Duration(d.Min), max: time.Duration(d.Max)}
	var sum uint64
	last := -1
	for i, t := range d.UpTo {
		if t < 0 {
			return fmt.Errorf("histogram: bucket up to %d ns", t)
		}
		k := bucket(time.Duration(t))
		if k <= last || upTo(k) != time.Duration(t) || d.Counts[i] == 0 {
			return fmt.Errorf("histogram: %d ns is no bucket's end, or out of order, or empty", t)
		}
		h.counts[k], last = d.Counts[i], k
		sum += d.Counts[i]
	}
	if sum != d.Count || d.Min < 0 || d.Max < d.Min {
		return errors.New("histogram: its count, minimum and maximum do not fit its buckets")
	}
	return nil
}
