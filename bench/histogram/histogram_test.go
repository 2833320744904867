package histogram

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestBucketsCoverEverything(t *testing.T) {
	for i := range size {
		end := upTo(i)
		if bucket(end) != i {
			t.Fatalf("bucket %d ends at %d, which is in bucket %d", i, end, bucket(end))
		}
		if end < math.MaxInt64 && bucket(end+1) != i+1 {
			t.Fatalf("%d is in bucket %d, want %d", end+1, bucket(end+1), i+1)
		}
	}
	if upTo(size-1) != math.MaxInt64 {
		t.Errorf("the last bucket ends at %d", upTo(size-1))
	}
}

// TestQuantiles compares quantiles with those of a sorted list.
func TestQuantiles(t *testing.T) {
	var h Histogram
	r := rand.New(rand.NewPCG(1, 2))
	var all []time.Duration
	for range 20000 {
		d := time.Duration(math.Exp(r.Float64()*20) * 10)
		all = append(all, d)
		h.Record(d)
	}
	slices.Sort(all)
	for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 0.999, 1} {
		want := all[max(int(math.Ceil(q*float64(len(all)))), 1)-1]
		got := h.Quantile(q)
		if got < want || float64(got) > float64(want)*1.032+1 {
			t.Errorf("q %g: %s, want %s to 3.2 %% more", q, got, want)
		}
	}
	if h.Min() != all[0] || h.Max() != all[len(all)-1] || h.Count() != 20000 {
		t.Errorf("min %s, max %s, count %d", h.Min(), h.Max(), h.Count())
	}
	if (&Histogram{}).Quantile(0.5) != 0 {
		t.Error("the median of none is not 0")
	}
}

func TestMergeAndJSON(t *testing.T) {
	var a, b, both Histogram
	for i, d := range []time.Duration{-1, 0, 1, 31, 32, 33, 1000, time.Hour, math.MaxInt64} {
		both.Record(d)
		if i%2 == 0 {
			a.Record(d)
		} else {
			b.Record(d)
		}
	}
	a.Merge(&b)
	a.Merge(&Histogram{})
	if a != both {
		t.Error("the merged histogram differs from the one that saw everything")
	}
	text, err := json.Marshal(&a)
	if err != nil {
		t.Fatal(err)
	}
	var back Histogram
	if err := json.Unmarshal(text, &back); err != nil || back != a {
		t.Errorf("%s did not come back: %v", text, err)
	}
	for _, bad := range []string{
		`[]`, `{"bucket_counts":[1]}`, `{"count":1}`,
		`{"count":1,"bucket_up_to_nanoseconds":[-5],"bucket_counts":[1]}`,
		`{"count":1,"max_nanoseconds":64,"bucket_up_to_nanoseconds":[64],"bucket_counts":[1]}`,
		`{"count":2,"max_nanoseconds":9,"bucket_up_to_nanoseconds":[9,8],"bucket_counts":[1,1]}`,
		`{"count":1,"min_nanoseconds":9,"max_nanoseconds":8,"bucket_up_to_nanoseconds":[9],"bucket_counts":[1]}`,
	} {
		if err := json.Unmarshal([]byte(bad), &back); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}
