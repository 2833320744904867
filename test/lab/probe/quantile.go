package probe

import (
	"math"
	"slices"
	"time"
)

// Quantile is the smallest of values that is not below the share q (0 to 1) of them: the
// nearest-rank definition, so it is always one that was measured. It is 0 for none. values is not changed.
func Quantile(values []time.Duration, q float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
